//! The message field.

use super::*;

/// The message field grows with its text; Shift and Enter begin a line, and Escape keeps the focus.
#[test]
fn the_message_field_takes_several_lines() {
    let folder = folder("lines");
    let mut window = open(&folder, "cpu");
    let height = |window: &Window| {
        let field = window.get_by_role(Role::MultilineTextInput);
        field.rect().height()
    };
    let one = height(&window);
    let field = window.get_by_role(Role::MultilineTextInput);
    field.focus();
    window.run_steps(1);
    for line in 0..4 {
        window.get_by_role(Role::MultilineTextInput).type_text(&format!("line {line}"));
        window.run_steps(1);
        window.key_press_modifiers(egui::Modifiers::SHIFT, egui::Key::Enter);
        window.run_steps(3);
    }
    assert!(window.state().chat().current().unwrap().messages.is_empty());
    // Five rows of text; one has the height of a button.
    assert!(height(&window) > 2.5 * one, "{} of {one}", height(&window));
    window.state_mut().settings_mut().max_tokens = 400;
    window.key_press(egui::Key::Enter);
    window.run_steps(1);
    let sent = window.state().chat().current().unwrap().messages[0].text.clone();
    assert_eq!(sent, "line 0\nline 1\nline 2\nline 3");
    until(&mut window, "some text", |app| app.chat().tokens() >= 2);
    window.key_press(egui::Key::Escape);
    let (_, stats) = answered(&mut window);
    assert!(stats.ends_with("stopped"), "{stats}");
    window.run_steps(2);
    assert!(window.get_by_role(Role::MultilineTextInput).is_focused());
    drop(window);
    std::fs::remove_dir_all(folder).unwrap();
}
