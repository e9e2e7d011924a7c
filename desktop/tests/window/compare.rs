//! The same prompt on several devices, and how long frames take.

use super::*;

#[test]
fn devices_are_compared_token_by_token() {
    let folder = folder("compare");
    let mut window = open(&folder, "cpu");
    window.state_mut().show(PanelName::Compare);
    window.run_steps(2);
    window.get_by_label("Nothing has been compared yet.");
    window.state_mut().compare().set_prompt("What is the capital of France?");
    let found = window.state().devices().found().unwrap();
    let count = found.devices.len();
    assert!(count >= 2, "{found:?}");
    click(&mut window, &format!("Run on {count} devices"));
    until(&mut window, "all have answered", |app| !app.is_busy());
    let app = window.state_mut();
    let answers: Vec<_> = app.compare().answers().map(|answer| answer.unwrap().clone()).collect();
    assert_eq!(answers.len(), count);
    for answer in &answers {
        assert!(answer.tokens.concat().trim_start().starts_with(PARIS), "{answer:?}");
        assert_eq!((answer.difference.as_ref(), answer.equal), (None, answer.tokens.len()));
    }
    // Of different orders of sums.
    assert!(answers.iter().any(|answer| answer.largest > 0.0), "{answers:?}");
    let tokens = answers[0].tokens.len();
    window.get_by_label_contains(&format!("All {tokens} tokens are equal on {count} devices"));
    // The model that is loaded still answers.
    window.state_mut().show(PanelName::Chat);
    window.run_steps(2);
    click(&mut window, "What is the capital of France?");
    assert_eq!(answered(&mut window).0, PARIS);
    drop(window);
    std::fs::remove_dir_all(folder).unwrap();
}

#[test]
fn a_device_that_is_not_there_does_not_end_a_comparison() {
    let folder = folder("compare-absent");
    let mut window = open(&folder, "cpu");
    let text = "wait\ntype What is the capital of France?\ncompare cpu:9 cpu:0\nwait\nexpect Paris";
    drop(window);
    let script = Some(Script::read(text, None).unwrap());
    let options = Options { script, ..options(&folder, "cpu") };
    let failed = options.failed.clone();
    window = super::window(options, [900.0, 700.0], None);
    window.state_mut().show(PanelName::Compare);
    until(&mut window, "the script ends", |app| !app.is_driven());
    assert_eq!(*failed.lock().unwrap(), None);
    let answers: Vec<bool> =
        window.state_mut().compare().answers().map(|answer| answer.is_ok()).collect();
    assert_eq!(answers, [false, true]);
    window.get_by_label("The others are compared with this one.");
    drop(window);
    std::fs::remove_dir_all(folder).unwrap();
}

#[test]
fn frames_are_measured_while_the_model_answers() {
    let folder = folder("frames");
    let options = options(&folder, "cpu");
    let mut window = window(options, [900.0, 1500.0], None);
    until(&mut window, "the model is loaded", |app| app.loaded().is_some() && !app.is_busy());
    window.state_mut().show(PanelName::Settings);
    window.run_steps(2);
    click(&mut window, "Measure the time of frames");
    window.state_mut().show(PanelName::Chat);
    window.run_steps(2);
    click(&mut window, "What is the capital of France?");
    assert_eq!(answered(&mut window).0, PARIS);
    window.state_mut().show(PanelName::Settings);
    window.run_steps(2);
    window.get_by_label_contains("while a model answers: ");
    window.get_by_label_contains("otherwise: ");
    drop(window);
    std::fs::remove_dir_all(folder).unwrap();
}
