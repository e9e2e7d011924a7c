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
    click(window, "What is the capital of France?");
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
        (folder.join("absent.gguf"), "A file could not be read or written"),
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

/// The device is opened again, but the times of kernels are not taken again.
#[test]
fn a_device_that_is_lost_in_a_measurement() {
    let folder = folder("lost-kernels");
    let mut window = open(&folder, "webgpu");
    window.state_mut().show(PanelName::Devices);
    window.run_steps(2);
    press(&mut window, "Take it away");
    window.state_mut().show(PanelName::Kernels);
    window.run_steps(2);
    click(&mut window, "Measure");
    // The driver's words: an allocation on the lost device fails before the loss is reported.
    message(&mut window, "Something went wrong", "invalid");
    until(&mut window, "the end", |app| !app.is_busy());
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
    message(&mut window, "A file could not be read or written", "No space left on device");
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
    goes_on(&mut window);
    drop(window);
    std::fs::remove_dir_all(folder).unwrap();
}

#[test]
fn a_damaged_file_of_settings() {
    let folder = folder("settings");
    let options = options(&folder, "cpu");
    std::fs::write(folder.join("settings.json"), "{\"theme\": 7}").unwrap();
    let mut window = window(options, [900.0, 1500.0], None);
    let failure = window.state().notice().failure().unwrap().clone();
    assert!(failure.message.contains("settings.json"), "{failure:?}");
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
