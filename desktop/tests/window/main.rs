//! Drives the window without a screen: each panel, as a person would, by the names of its buttons.

use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use eframe::egui::{self, accesskit::Role};
use eframe::egui_wgpu::RenderState;
use egui_kittest::Harness;
use egui_kittest::kittest::{NodeT, Queryable};
use warploom_desktop::app::{App, Options};
use warploom_desktop::gallery::{SceneName, Size};
use warploom_desktop::panel::PanelName;
use warploom_desktop::script::Script;

mod compare;
mod composer;
mod failures;
mod hub;
mod prefs;
mod render;

/// Longest time that a condition may take.
const PATIENCE: Duration = Duration::from_secs(120);
/// The most probable answer to the question after the capital of France.
const PARIS: &str = "The capital of France is Paris.";
/// The beginning of the most probable story, up to the first near tie.
const STORY: &str = "Once upon a time, there was a brave mouse named Max who";

type Window = Harness<'static, Slot>;

/// The window, which is created in its first frame.
struct Slot {
    options: Option<Options>,
    graphics: Option<RenderState>,
    app: Option<App>,
}

impl std::ops::Deref for Slot {
    type Target = App;

    fn deref(&self) -> &App {
        self.app.as_ref().unwrap()
    }
}

impl std::ops::DerefMut for Slot {
    fn deref_mut(&mut self) -> &mut App {
        self.app.as_mut().unwrap()
    }
}

/// Opens a window of a size in points.
fn window(options: Options, size: [f32; 2], graphics: Option<RenderState>) -> Window {
    let slot = Slot { options: Some(options), graphics, app: None };
    let frame = |ui: &mut egui::Ui, slot: &mut Slot| {
        if let Some(options) = slot.options.take() {
            let app = App::new(ui.ctx(), slot.graphics.as_ref(), options).unwrap();
            slot.app = Some(app);
        }
        let app = slot.app.as_mut().unwrap();
        app.prepare(ui.ctx());
        app.draw(ui);
    };
    let builder = Harness::builder().with_size(size).with_max_steps(2);
    match &slot.graphics {
        Some(state) => builder.renderer(render::Textures(state.clone())),
        None => builder,
    }
    .build_ui_state(frame, slot)
}

/// Returns an empty folder for a test.
fn folder(name: &str) -> PathBuf {
    let name = format!("warploom-window-{name}-{}", std::process::id());
    let folder = std::env::temp_dir().join(name);
    let _ = std::fs::remove_dir_all(&folder);
    std::fs::create_dir_all(&folder).unwrap();
    folder
}

fn options(folder: &Path, device: &str) -> Options {
    // Greedy and exact, so that every device answers the same.
    let settings = "{\"temperature\": 0, \"exact\": true, \"max_tokens\": 40}";
    std::fs::write(folder.join("settings.json"), settings).unwrap();
    Options {
        folder: Some(folder.to_owned()),
        device: Some(device.to_owned()),
        ..Options::default()
    }
}

/// Opens a window without graphics, and waits until its model is loaded.
fn open(folder: &Path, device: &str) -> Window {
    let options = options(folder, device);
    let mut window = window(options, [1100.0, 760.0], None);
    until(&mut window, "the model is loaded", |app| app.loaded().is_some() && !app.is_busy());
    window
}

/// Draws frames until a condition holds.
#[track_caller]
fn until(window: &mut Window, what: &str, done: impl Fn(&mut App) -> bool) {
    let begin = Instant::now();
    while !done(window.state_mut()) {
        let failure = window.state().notice().failure().cloned();
        assert!(begin.elapsed() < PATIENCE, "not in time: {what}; {failure:?}");
        window.step();
        std::thread::sleep(Duration::from_millis(3));
    }
    window.run_steps(2);
}

/// Returns the path of the embedded model's file.
fn embedded() -> PathBuf {
    let models = Path::new(env!("CARGO_MANIFEST_DIR")).join("../models");
    models.join("warploom-tiny-llama-Q4_K_M.gguf").canonicalize().unwrap()
}

#[track_caller]
fn click(window: &mut Window, label: &str) {
    window.get_by_label(label).click();
    window.run_steps(2);
}

/// Presses a button as a screen reader does, also if it lies below what is visible.
#[track_caller]
fn press(window: &mut Window, label: &str) {
    window.get_by_label(label).click_accesskit();
    window.run_steps(2);
}

fn last(window: &Window) -> (String, String) {
    let messages = &window.state().chat().current().unwrap().messages;
    let last = messages.last().unwrap();
    assert!(!last.user, "{messages:?}");
    (last.text.trim().to_owned(), last.stats.clone())
}

fn answered(window: &mut Window) -> (String, String) {
    until(window, "the answer ends", |app| !app.chat().is_answering());
    last(window)
}

/// Writes a text into the message field, and presses Enter.
fn say(window: &mut Window, text: &str) {
    let field = window.get_by_role(Role::MultilineTextInput);
    field.focus();
    window.run_steps(1);
    window.get_by_role(Role::MultilineTextInput).type_text(text);
    window.run_steps(2);
    window.key_press(egui::Key::Enter);
    window.run_steps(1);
}

#[test]
fn the_embedded_model_answers_with_the_golden_text() {
    let folder = folder("golden");
    let mut window = open(&folder, "cpu");
    click(&mut window, "What is the capital of France?");
    let (text, stats) = answered(&mut window);
    assert_eq!(text, PARIS);
    assert!(stats.contains(" tokens · ") && stats.contains("first after"), "{stats}");
    // It is shown, and on disk.
    window.get_by_label_contains(PARIS);
    let files: Vec<_> = std::fs::read_dir(folder.join("conversations")).unwrap().collect();
    assert_eq!(files.len(), 1);
    let file = std::fs::read_to_string(files[0].as_ref().unwrap().path()).unwrap();
    assert!(file.contains(PARIS), "{file}");
    // The next window has the conversation in its list.
    drop(window);
    let window = open(&folder, "cpu");
    let label = "What is the capital of France?";
    // The other one is the suggestion.
    assert_eq!(window.query_all_by_label(label).count(), 2);
    drop(window);
    std::fs::remove_dir_all(folder).unwrap();
}

#[test]
fn an_answer_is_stopped_written_again_edited_and_branched() {
    let folder = folder("edit");
    let mut window = open(&folder, "cpu");
    window.state_mut().settings_mut().max_tokens = 400;
    say(&mut window, "Tell me a story about a brave mouse and a red ball.");
    until(&mut window, "some text", |app| app.chat().tokens() >= 4);
    click(&mut window, "Stop");
    let (stopped, stats) = answered(&mut window);
    assert!(stats.ends_with("stopped"), "{stats}");
    assert!(STORY.starts_with(&stopped) || stopped.starts_with(STORY), "{stopped}");

    window.state_mut().settings_mut().max_tokens = 20;
    click(&mut window, "Write again");
    let (again, stats) = answered(&mut window);
    assert!(again.starts_with(STORY) && stats.contains("length limit"), "{again} {stats}");

    click(&mut window, "Edit");
    window.run_steps(1);
    window.key_press_modifiers(egui::Modifiers::COMMAND, egui::Key::A);
    window.run_steps(1);
    say(&mut window, "What is the capital of France?");
    let (edited, _) = answered(&mut window);
    assert_eq!(edited, PARIS);
    assert_eq!(window.state().chat().current().unwrap().messages.len(), 2);

    let before = window.state().chat().current().unwrap().id.clone();
    click(&mut window, "Branch");
    let branch = window.state().chat().current().unwrap();
    assert!(branch.id != before && branch.messages.len() == 1, "{branch:?}");
    window.key_press_modifiers(egui::Modifiers::COMMAND, egui::Key::N);
    window.run_steps(2);
    window.get_by_label("A language model, in this window");
    drop(window);
    std::fs::remove_dir_all(folder).unwrap();
}

#[test]
fn a_file_is_estimated_and_loaded_and_remembered() {
    let folder = folder("estimate");
    let mut window = open(&folder, "cpu");
    let model = embedded();
    window.state_mut().open_file(&model);
    until(&mut window, "an estimate", |app| !app.is_busy());
    window.get_by_label("It fits.");
    window.get_by_label("Weights");
    click(&mut window, "Load");
    until(&mut window, "it is loaded", |app| !app.is_busy());
    assert!(matches!(
        &window.state().loaded().unwrap().source,
        warploom_desktop::engine::Source::File(path) if *path == model
    ));
    assert_eq!(window.state_mut().settings_mut().recent, [model]);
    click(&mut window, "Who are you?");
    assert!(!answered(&mut window).0.is_empty());
    drop(window);
    std::fs::remove_dir_all(folder).unwrap();
}

#[test]
fn a_device_is_taken_away_in_the_middle_of_an_answer_which_goes_on() {
    let folder = folder("lost");
    let mut window = open(&folder, "webgpu");
    assert!(window.state().loaded().unwrap().through_wgpu);
    window.state_mut().settings_mut().max_tokens = 24;
    say(&mut window, "Tell me a story about a brave mouse and a red ball.");
    window.state_mut().show(PanelName::Devices);
    window.run_steps(2);
    until(&mut window, "some text", |app| app.chat().tokens() >= 3);
    assert!(window.state().chat().is_answering());
    press(&mut window, "Take it away");
    let (text, stats) = answered(&mut window);
    assert!(text.starts_with(STORY), "{text}");
    assert!(stats.starts_with("24 tokens"), "{stats}");
    let events = window.state().devices().events().join("\n");
    assert!(events.contains("was destroyed") && events.contains("was lost"), "{events}");
    assert_eq!(window.state().notice().failure(), None);
    // It is shown below the button.
    assert!(window.query_all_by_label_contains("tokens computed again").next().is_some());
    drop(window);
    std::fs::remove_dir_all(folder).unwrap();
}

#[test]
fn another_device_is_chosen() {
    let folder = folder("devices");
    let mut window = open(&folder, "webgpu");
    window.state_mut().show(PanelName::Devices);
    window.run_steps(2);
    assert_eq!(window.state().loaded().unwrap().device, "webgpu:0");
    click(&mut window, "Use cpu:0");
    until(&mut window, "it is loaded there", |app| !app.is_busy());
    assert_eq!(window.state().loaded().unwrap().device, "cpu:0");
    window.get_by_label("the model is here");
    window.get_by_label("Use webgpu:0");
    drop(window);
    std::fs::remove_dir_all(folder).unwrap();
}

#[test]
fn kernels_of_a_token_are_measured() {
    let folder = folder("kernels");
    let mut window = open(&folder, "cpu");
    window.state_mut().show(PanelName::Kernels);
    window.run_steps(2);
    click(&mut window, "Measure");
    until(&mut window, "kernels", |app| !app.is_busy());
    let kernels = window.state().kernels().measured().unwrap();
    let share: f64 = kernels.report.engines.iter().map(|engine| engine.share).sum();
    assert!((share - 1.0).abs() < 1e-6, "{share}");
    assert!(kernels.report.steps.iter().all(|step| step.measured.is_some()));
    assert!(kernels.explain.contains("by engine"), "{}", kernels.explain);
    let engine = kernels.report.engines[0].engine.clone();
    let (count, last) = (kernels.report.steps.len(), kernels.report.steps.last().unwrap());
    let label = format!("Step {}: {}", last.number, last.label);
    assert!(window.query_all_by_label(&engine).next().is_some());
    // From the last kernel one walks to the one before, and sees its text.
    let app = window.state_mut();
    assert!(app.kernels_mut().choose(count - 1) && !app.kernels_mut().choose(count));
    window.run_steps(2);
    window.get_by_label(&label);
    press(&mut window, "Previous");
    assert_eq!(window.state().kernels().step(), Some(count - 2));
    press(&mut window, "CUDA C");
    assert!(window.query_all_by_label_contains("__global__").next().is_some());
    click(&mut window, "Save for Perfetto");
    let trace = std::fs::read_to_string(folder.join("trace.json")).unwrap();
    assert!(trace.contains("traceEvents"), "{}", &trace[..200.min(trace.len())]);
    // The model still answers.
    window.state_mut().show(PanelName::Chat);
    window.run_steps(2);
    click(&mut window, "What is the capital of France?");
    assert_eq!(answered(&mut window).0, PARIS);
    drop(window);
    std::fs::remove_dir_all(folder).unwrap();
}

#[test]
fn a_pack_is_checked_as_one_types_and_timed() {
    let folder = folder("playground");
    let mut window = open(&folder, "cpu");
    window.state_mut().show(PanelName::Playground);
    assert!(window.state_mut().playground().open("life"));
    until(&mut window, "it is checked", |app| !app.playground().is_busy());
    window.get_by_label("right");

    assert!(window.state_mut().playground().replace("let now = cells[at];", "let now = cels[at];"));
    until(&mut window, "it is checked", |app| !app.playground().is_busy());
    let problem = window.state_mut().playground().checked().unwrap().problem.clone().unwrap();
    assert!(problem.message.contains("cels"), "{problem:?}");
    window.get_by_label(&format!("wrong, line {}", problem.line.unwrap()));
    assert!(window.get_by_label("Run on cpu:0").accesskit_node().is_disabled());

    assert!(window.state_mut().playground().replace("cels", "cells"));
    until(&mut window, "it is checked", |app| !app.playground().is_busy());
    click(&mut window, "Run on cpu:0");
    until(&mut window, "it is timed", |app| !app.playground().is_busy());
    let timed = window.state_mut().playground().timed().to_vec();
    let timing = timed[0].result.as_ref().unwrap();
    assert!(timing.bytes > 0 && timing.kernel_s > 0.0, "{timing:?}");
    drop(window);
    std::fs::remove_dir_all(folder).unwrap();
}

#[test]
fn the_server_answers_and_so_does_the_chat_meanwhile() {
    let folder = folder("server");
    let mut window = open(&folder, "cpu");
    window.state_mut().settings_mut().port = 0;
    window.state_mut().show(PanelName::Server);
    window.run_steps(2);
    click(&mut window, "Switch on");
    until(&mut window, "the server runs", |app| app.serve().address().is_some());
    let address = window.state().serve().address().unwrap();
    let mut stream = std::net::TcpStream::connect(address).unwrap();
    write!(stream, "GET /v1/models HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n").unwrap();
    let mut reply = String::new();
    stream.read_to_string(&mut reply).unwrap();
    assert!(reply.starts_with("HTTP/1.1 200") && reply.contains("warploom-tiny-llama"), "{reply}");

    window.state_mut().show(PanelName::Chat);
    window.run_steps(2);
    click(&mut window, "What is the capital of France?");
    assert_eq!(answered(&mut window).0, PARIS);

    // On another device the server goes on, at its address.
    window.state_mut().show(PanelName::Devices);
    window.run_steps(2);
    let text = "Choose the best one automatically";
    click(&mut window, text);
    until(&mut window, "it serves there", |app| !app.is_busy());
    assert_eq!(window.state().serve().address(), Some(address));
    assert!(std::net::TcpStream::connect(address).is_ok());

    window.state_mut().show(PanelName::Server);
    window.run_steps(2);
    click(&mut window, "Switch off");
    until(&mut window, "the server ended", |app| app.serve().address().is_none());
    assert!(std::net::TcpStream::connect(address).is_err());
    drop(window);
    std::fs::remove_dir_all(folder).unwrap();
}

/// Opens a window with graphics.
fn drawn(folder: &Path) -> (Window, RenderState) {
    let state = render::state();
    let window = window(options(folder, "cpu"), [700.0, 620.0], Some(state.clone()));
    (window, state)
}

/// Each picture is drawn, from the device's memory, as the stored one. `UPDATE_GOLDEN=1` writes the
/// stored ones anew.
#[test]
fn pictures_are_drawn_from_where_they_were_computed() {
    let folder = folder("pictures");
    let (mut window, state) = drawn(&folder);
    until(&mut window, "the model is loaded", |app| app.loaded().is_some() && !app.is_busy());
    window.state_mut().settings_mut().theme = warploom_desktop::settings::Theme::Dark;
    window.state_mut().show(PanelName::Pictures);
    for (scene, steps, size) in [
        (SceneName::Life, 12, Size { width: 96, height: 72 }),
        (SceneName::Mandelbrot, 1, Size { width: 160, height: 120 }),
        (SceneName::Fluid, 10, Size { width: 80, height: 60 }),
        (SceneName::Boids, 10, Size { width: 256, height: 1 }),
        (SceneName::Bodies, 10, Size { width: 256, height: 1 }),
        (SceneName::Photo, 6, Size { width: 1, height: 1 }),
    ] {
        let gallery = window.state_mut().gallery().unwrap();
        gallery.set_size(Some(size));
        gallery.show(scene);
        gallery.play(false);
        // One step at a time, so that the number of steps is exact.
        for step in 1..=steps {
            until(&mut window, "it is computed", |app| app.gallery().unwrap().is_ready());
            window.state_mut().gallery().unwrap().step();
            until(&mut window, "a step", |app| app.gallery().unwrap().steps() >= step);
        }
        assert_eq!(window.state_mut().gallery().unwrap().steps(), steps);
        window.run_steps(2);
        let picture = render::picture(&state, &window.ctx, window.output());
        let rect = window.state_mut().gallery().unwrap().rect();
        let (x, y) = (rect.min.x.round() as u32, rect.min.y.round() as u32);
        let (w, h) = (rect.width() as u32 - 2, rect.height() as u32 - 2);
        compare(scene, &image::imageops::crop_imm(&picture, x + 1, y + 1, w, h).to_image());
    }
    assert_eq!(window.state().notice().failure(), None);
    drop(window);
    std::fs::remove_dir_all(folder).unwrap();
}

/// Compares a picture with the stored one.
fn compare(scene: SceneName, picture: &image::RgbaImage) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/pictures");
    let path = path.join(format!("{}.png", scene.id()));
    let small = image::imageops::thumbnail(picture, 160, 120);
    if std::env::var("UPDATE_GOLDEN").is_ok_and(|value| value == "1") {
        small.save(&path).unwrap();
        return;
    }
    let stored = image::open(&path).unwrap().to_rgba8();
    let colors: std::collections::BTreeSet<_> = small.pixels().map(|pixel| pixel.0).collect();
    assert!(colors.len() > 8, "{scene:?}: {} colours, nothing is drawn", colors.len());
    let differ = |a: &image::Rgba<u8>, b: &image::Rgba<u8>| {
        a.0.iter().zip(b.0).any(|(a, b)| a.abs_diff(b) > 24)
    };
    let pixels = small.pixels().zip(stored.pixels());
    let wrong = pixels.filter(|(a, b)| differ(a, b)).count();
    let mut counts = std::collections::BTreeMap::<_, usize>::new();
    stored.pixels().for_each(|pixel| *counts.entry(pixel.0).or_default() += 1);
    let ground = counts.into_values().max().unwrap();
    let drawn = 160 * 120 - ground;
    // Rounding of other drivers moves a few points.
    assert!(wrong * 16 <= drawn, "{scene:?}: {wrong} pixels differ, {drawn} are not the ground");
}

#[test]
fn a_script_drives_the_window_and_fails_at_its_line() {
    let folder = folder("script");
    let run = |text: &str| {
        let script = Some(Script::read(text, None).unwrap());
        let options = Options { script, ..options(&folder, "cpu") };
        let failed = options.failed.clone();
        let mut window = window(options, [900.0, 700.0], None);
        until(&mut window, "the script ends", |app| !app.is_driven());
        let failed = failed.lock().unwrap().clone();
        (window, failed)
    };
    let text =
        "wait\ntype What is the capital of France?\nsend\nwait\nexpect Paris\npanel settings";
    let (window, failed) = run(text);
    assert_eq!(failed, None);
    assert!(window.query_all_by_label("Temperature").next().is_some());
    drop(window);
    let (_, failed) = run("wait\n\nexpect Rome");
    let failed = failed.unwrap();
    assert!(failed.contains("line 3") && failed.contains("Rome"), "{failed}");
    std::fs::remove_dir_all(&folder).unwrap();
}
