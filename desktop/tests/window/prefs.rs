//! Presets, and measurements after every answer.

use super::*;

#[test]
fn a_preset_sets_system_message_and_sampling_and_own_ones_are_kept() {
    let folder = folder("presets");
    let mut window = open(&folder, "cpu");
    // The options of the tests are those of no preset.
    click(&mut window, "Preset: own");
    click(&mut window, "Facts");
    let settings = window.state_mut().settings_mut();
    assert!(settings.system.contains("not sure") && settings.temperature == 0.0, "{settings:?}");
    window.run_steps(2);
    window.get_by_label("Preset: Facts");
    window.state_mut().show(PanelName::Settings);
    window.state_mut().settings_mut().system = "Be kind.".into();
    window.run_steps(2);
    let field = "Name of a preset";
    window.get_by_label(field).focus();
    window.run_steps(1);
    window.get_by_label(field).type_text("Kind");
    window.run_steps(2);
    press(&mut window, "Keep as a preset");
    let kept = window.state_mut().settings_mut().presets.clone();
    assert_eq!((kept.len(), kept[0].system.as_str()), (1, "Be kind."));
    press(&mut window, "Plain");
    assert_eq!(window.state_mut().settings_mut().system, "");
    press(&mut window, "Kind");
    assert_eq!(window.state_mut().settings_mut().system, "Be kind.");
    press(&mut window, "Delete \"Kind\"");
    assert!(window.state_mut().settings_mut().presets.is_empty());
    drop(window);
    std::fs::remove_dir_all(folder).unwrap();
}

#[test]
fn kernels_are_measured_after_every_answer_if_that_is_chosen() {
    let folder = folder("live");
    let mut window = open(&folder, "cpu");
    window.state_mut().show(PanelName::Kernels);
    window.run_steps(2);
    click(&mut window, "After every answer");
    window.state_mut().show(PanelName::Chat);
    window.run_steps(2);
    click(&mut window, "What is the capital of France?");
    assert_eq!(answered(&mut window).0, PARIS);
    until(&mut window, "kernels", |app| !app.is_busy() && app.kernels().measured().is_some());
    // The conversation goes on.
    say(&mut window, "Who are you?");
    assert!(!answered(&mut window).0.is_empty());
    drop(window);
    std::fs::remove_dir_all(folder).unwrap();
}
