//! What goes wrong is one message in the window, and the program goes on.

use super::*;

/// Checks that the window shows a message with this title, and a cause in its details.
#[track_caller]
fn message(window: &mut Window, title: &str, cause: &str) {
    until(window, title, |app| app.notice().failure().is_some());
    window.get_by_label(title);
    let failure = window.state().notice().failure().unwrap().clone();
    assert!(failure.message.contains(cause), "{failure:?}");
}

/// Checks that the model still answers, and that the message is gone.
#[track_caller]
fn goes_on(window: &mut Window) {
    window.state_mut().show(PanelName::Chat);
    window.key_press_modifiers(egui::Modifiers::COMMAND, egui::Key::N);
    window.run_steps(2);
    // The list may have a conversation with the same title.
    let suggestion = window.get_all_by_label("What is the capital of France?").last();
    suggestion.unwrap().click();
    window.run_steps(2);
    assert_eq!(answered(window).0, PARIS);
    assert_eq!(window.state().notice().failure(), None);
}

#[test]
fn a_file_that_is_no_model() {
    let folder = folder("wrong");
    let mut window = open(&folder, "cpu");
    let path = folder.join("holiday.gguf");
    std::fs::write(&path, "a sea").unwrap();
    for (path, title) in [
        (path, "This file is not a model that can be read"),
        (folder.join("absent.gguf"), "A file is not there"),
    ] {
        window.state_mut().open_file(&path);
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        message(&mut window, title, &name);
        click(&mut window, "Details");
        window.get_by_label_contains(&name);
        click(&mut window, "Dismiss");
        assert!(window.query_by_label(title).is_none());
    }
    goes_on(&mut window);
    drop(window);
    std::fs::remove_dir_all(folder).unwrap();
}

/// A model whose context alone is larger than any memory. The one before stays loaded.
#[test]
fn a_model_that_is_too_large() {
    let folder = folder("large");
    let mut window = open(&folder, "cpu");
    let mut bytes = std::fs::read(embedded()).unwrap();
    let key = b"llama.context_length";
    let at = bytes.windows(key.len()).position(|part| part == key).unwrap() + key.len();
    // The kind of the value, u32, and the value.
    assert_eq!(bytes[at..at + 4], [4, 0, 0, 0]);
    bytes[at + 4..at + 8].copy_from_slice(&(1_u32 << 24).to_le_bytes());
    let path = folder.join("large.gguf");
    std::fs::write(&path, bytes).unwrap();
    window.state_mut().settings_mut().context = Some(1 << 24);
    window.state_mut().open_file(&path);
    until(&mut window, "an estimate", |app| !app.is_busy());
    window.get_by_label("It may not fit on this device.");
    click(&mut window, "Load");
    message(&mut window, "The device has not enough memory", "large.gguf");
    until(&mut window, "the model before", |app| !app.is_busy());
    let loaded = window.state().loaded().unwrap();
    assert_eq!(loaded.source, warploom_desktop::engine::Source::Embedded);
    goes_on(&mut window);
    drop(window);
    std::fs::remove_dir_all(folder).unwrap();
}

/// The device is opened again, and the kernels are timed there.
#[test]
fn a_device_that_is_lost_before_a_measurement() {
    let folder = folder("lost-kernels");
    let mut window = open(&folder, "webgpu");
    window.state_mut().show(PanelName::Devices);
    window.run_steps(2);
    press(&mut window, "Take it away");
    window.state_mut().show(PanelName::Kernels);
    window.run_steps(2);
    click(&mut window, "Measure");
    until(&mut window, "the end", |app| !app.is_busy());
    assert!(window.state().kernels().measured().is_some());
    goes_on(&mut window);
    drop(window);
    std::fs::remove_dir_all(folder).unwrap();
}

/// Nothing runs on the device, so that nothing finds its loss before the next question.
#[test]
fn a_device_that_is_lost_between_two_answers() {
    let folder = folder("lost-idle");
    let mut window = open(&folder, "webgpu");
    click(&mut window, "What is the capital of France?");
    assert_eq!(answered(&mut window).0, PARIS);
    window.state_mut().show(PanelName::Devices);
    window.run_steps(2);
    press(&mut window, "Take it away");
    goes_on(&mut window);
    let events = window.state().devices().events().join("\n");
    assert!(events.contains("was lost"), "{events}");
    // The device that was opened again can be taken away too.
    window.state_mut().show(PanelName::Devices);
    window.run_steps(2);
    press(&mut window, "Take it away");
    goes_on(&mut window);
    drop(window);
    std::fs::remove_dir_all(folder).unwrap();
}

/// Two windows with one folder: no message is lost.
#[test]
fn two_windows_in_one_conversation() {
    let folder = folder("two-windows");
    let mut first = open(&folder, "cpu");
    click(&mut first, "What is the capital of France?");
    answered(&mut first);
    let id = first.state().chat().current().unwrap().id.clone();
    let mut second = open(&folder, "cpu");
    second.get_all_by_label("What is the capital of France?").next().unwrap().click();
    second.run_steps(2);
    assert_eq!(second.state().chat().current().unwrap().id, id);
    for (window, text) in [(&mut first, "Who are you?"), (&mut second, "Tell me a story.")] {
        window.state_mut().settings_mut().max_tokens = 4;
        say(window, text);
        until(window, "the answer ends", |app| !app.chat().is_answering());
    }
    message(&mut second, "Another program changed this conversation", &id);
    assert_ne!(second.state().chat().current().unwrap().id, id);
    drop((first, second));
    let files = std::fs::read_dir(folder.join("conversations")).unwrap().flatten();
    let texts: Vec<_> = files.map(|file| std::fs::read_to_string(file.path()).unwrap()).collect();
    for text in ["Who are you?", "Tell me a story."] {
        assert_eq!(texts.iter().filter(|file| file.contains(text)).count(), 1, "{texts:?}");
    }
    std::fs::remove_dir_all(folder).unwrap();
}

/// The answer so far is kept, and one that another one was to replace.
#[test]
fn a_window_that_is_closed_in_the_middle_of_an_answer() {
    let folder = folder("closed");
    let mut window = open(&folder, "cpu");
    let saved = || {
        let mut files = std::fs::read_dir(folder.join("conversations")).unwrap().flatten();
        std::fs::read_to_string(files.next().unwrap().path()).unwrap()
    };
    click(&mut window, "What is the capital of France?");
    answered(&mut window);
    assert!(saved().contains(PARIS));
    window.state_mut().settings_mut().max_tokens = 4000;
    click(&mut window, "Write again");
    // Before its first token.
    assert!(saved().contains(PARIS));
    window.key_press_modifiers(egui::Modifiers::COMMAND, egui::Key::N);
    window.run_steps(2);
    until(&mut window, "the answer ends", |app| !app.chat().is_answering());
    say(&mut window, "Tell me a story about a brave mouse and a red ball.");
    until(&mut window, "some text", |app| app.chat().tokens() >= 6);
    eframe::App::on_exit(window.state_mut().app.as_mut().unwrap());
    drop(window);
    let files = std::fs::read_dir(folder.join("conversations")).unwrap().flatten();
    let texts: Vec<_> = files.map(|file| std::fs::read_to_string(file.path()).unwrap()).collect();
    let story = texts.iter().find(|text| text.contains("brave mouse")).unwrap();
    assert!(story.contains("Once upon a time") && story.contains("was closed"), "{story}");
    std::fs::remove_dir_all(folder).unwrap();
}

/// The last model is gone: the embedded one answers, and the choice stays for the next start.
#[test]
fn a_model_that_is_not_there_at_the_start() {
    let folder = folder("absent");
    let mut options = options(&folder, "cpu");
    options.model = Some(folder.join("gone.gguf"));
    let mut window = window(options, [1100.0, 760.0], None);
    message(&mut window, "A file is not there", "gone.gguf");
    until(&mut window, "a model is loaded", |app| app.loaded().is_some() && !app.is_busy());
    // The message stays until it is read.
    window.get_by_label("A file is not there");
    goes_on(&mut window);
    drop(window);
    // So does a device that is gone.
    let options = Options { device: Some("cuda:77".into()), ..self::options(&folder, "cpu") };
    let mut window = self::window(options, [1100.0, 760.0], None);
    until(&mut window, "a model is loaded", |app| app.loaded().is_some() && !app.is_busy());
    assert!(window.state().notice().failure().is_some());
    goes_on(&mut window);
    drop(window);
    std::fs::remove_dir_all(folder).unwrap();
}

/// A conversation that does not fit on the disk. The answer is there all the same.
#[test]
#[cfg(target_os = "linux")]
fn a_full_disk() {
    let folder = folder("full");
    let mut window = open(&folder, "cpu");
    let conversations = folder.join("conversations");
    std::fs::create_dir_all(&conversations).unwrap();
    let id = window.state().chat().current().unwrap().id.clone();
    // Where a file is written before it gets its name.
    let full = conversations.join(format!("{id}.new"));
    std::os::unix::fs::symlink("/dev/full", &full).unwrap();
    window.state_mut().settings_mut().max_tokens = 4;
    say(&mut window, "Who are you?");
    message(&mut window, "The disk is full", "No space left on device");
    assert!(!answered(&mut window).0.is_empty());
    window.state_mut().settings_mut().max_tokens = 40;
    goes_on(&mut window);
    // With room again, it is saved.
    assert!(conversations.join(format!("{id}.json")).exists());
    drop(window);
    std::fs::remove_dir_all(folder).unwrap();
}

#[test]
fn a_broken_pack() {
    let folder = folder("pack");
    let mut window = open(&folder, "cpu");
    window.state_mut().show(PanelName::Playground);
    assert!(window.state_mut().playground().open("blur"));
    assert!(window.state_mut().playground().replace("array<f32>", "array<f31>"));
    until(&mut window, "it is checked", |app| !app.playground().is_busy());
    let problem = window.state_mut().playground().checked().unwrap().problem.clone().unwrap();
    assert!(problem.message.contains("f31"), "{problem:?}");
    window.get_by_label_contains(&problem.message);
    // The problem is where the text is, and nowhere else.
    assert_eq!(window.state().notice().failure(), None);
    assert!(window.state_mut().playground().open("life"));
    until(&mut window, "it is checked", |app| !app.playground().is_busy());
    window.get_by_label("right");
    // The change is there again, also for the next window, until it is undone.
    assert!(window.state_mut().playground().open("blur"));
    assert!(window.state_mut().playground().texts().shader.1.contains("f31"));
    goes_on(&mut window);
    drop(window);
    let mut window = open(&folder, "cpu");
    window.state_mut().show(PanelName::Playground);
    assert!(window.state_mut().playground().open("blur"));
    until(&mut window, "it is checked", |app| !app.playground().is_busy());
    window.get_by_label_contains(&problem.message);
    click(&mut window, "Undo all changes");
    until(&mut window, "it is checked", |app| !app.playground().is_busy());
    window.get_by_label("right");
    assert!(!folder.join("packs/blur").exists());
    drop(window);
    std::fs::remove_dir_all(folder).unwrap();
}

#[test]
fn a_damaged_file_of_settings() {
    let folder = folder("settings");
    let options = options(&folder, "cpu");
    std::fs::write(folder.join("settings.json"), "{\"theme\": 7}").unwrap();
    let mut window = window(options, [900.0, 1500.0], None);
    message(&mut window, "The settings could not be read", "settings.json");
    let aside = std::fs::read_to_string(folder.join("settings-unread.json")).unwrap();
    assert_eq!(aside, "{\"theme\": 7}");
    until(&mut window, "the model is loaded", |app| app.loaded().is_some());
    window.state_mut().show(PanelName::Settings);
    window.run_steps(2);
    click(&mut window, "Dark");
    window.run_steps(4);
    let saved = std::fs::read_to_string(folder.join("settings.json")).unwrap();
    assert!(saved.contains("\"dark\""), "{saved}");
    drop(window);
    std::fs::remove_dir_all(folder).unwrap();
}

/// A picture that is none is one message, and the program's own is shown again.
#[test]
fn a_file_that_is_no_picture() {
    let folder = folder("no-picture");
    let (mut window, _) = drawn(&folder);
    until(&mut window, "the model is loaded", |app| app.loaded().is_some() && !app.is_busy());
    let path = folder.join("holiday.jpg");
    std::fs::write(&path, "a sea").unwrap();
    window.state_mut().open_file(&path);
    message(&mut window, "That is not possible", "holiday.jpg");
    click(&mut window, "Dismiss");
    // It is not tried again and again.
    window.run_steps(8);
    assert_eq!(window.state().notice().failure(), None);
    let good = folder.join("good.png");
    image::RgbaImage::from_pixel(40, 20, image::Rgba([200, 20, 20, 255])).save(&good).unwrap();
    window.state_mut().open_file(&good);
    until(&mut window, "it is painted", |app| app.gallery().unwrap().steps() > 2);
    assert_eq!(window.state().notice().failure(), None);
    drop(window);
    std::fs::remove_dir_all(folder).unwrap();
}
