use std::sync::Arc;

use super::*;
use warploom_llm::structure::{Grammar, Structure};
use warploom_llm::tokenizer::Tokenizer;

/// Tokens that are single bytes; 0 ends an answer.
fn tokenizer() -> Arc<Tokenizer> {
    crate::test_rig::byte_tokenizer()
}

fn constraint(grammar: Grammar) -> Constraint {
    Structure::new(&tokenizer()).unwrap().compile(&grammar).unwrap()
}

/// The bytes that may follow.
fn allowed(watch: &mut Watch) -> Vec<u8> {
    let mut logits = vec![0.0; 256];
    watch.mask(&mut logits).unwrap();
    (0..=255).filter(|byte| logits[usize::from(*byte)] == 0.0).collect()
}

fn write(watch: &mut Watch, text: &str) {
    for byte in text.bytes() {
        watch.accept(u32::from(byte), &[byte]).unwrap();
    }
}

#[test]
fn a_constraint_applies_from_the_start() {
    let mut watch = Watch::new(Guard::new(constraint(Grammar::Regex("a[bc]d".into()))));
    assert!(watch.is_on());
    assert_eq!(watch.accept_forced().unwrap(), [97]);
    assert_eq!(allowed(&mut watch), b"bc");
    write(&mut watch, "b");
    assert_eq!(watch.accept_forced().unwrap(), [100]);
    assert!(watch.is_finished());
}

#[test]
fn a_constraint_waits_for_its_marker_and_for_the_next_one() {
    let guard = Guard::new(constraint(Grammar::Regex("1[23]4".into())));
    let guard = guard.begin(Begin::After("<m>".into()));
    let mut watch = Watch::new(guard.clone().repeats(true));
    write(&mut watch, "text <m text <m");
    assert!(!watch.is_on() && allowed(&mut watch).len() == 256);
    for _ in 0..2 {
        write(&mut watch, ">");
        assert!(watch.is_on());
        write(&mut watch, "134");
        assert!(!watch.is_on() && !watch.is_finished());
        write(&mut watch, " more <m");
    }
    // A token may contain the end of the marker and more.
    watch.accept(62, b">12").unwrap();
    assert_eq!(allowed(&mut watch), b"4");
    let mut watch = Watch::new(guard.clone());
    watch.accept(62, b"<m>5").unwrap();
    assert!(!watch.is_on());
    let mut watch = Watch::new(guard);
    write(&mut watch, "<m>124");
    assert!(watch.is_finished());
}

#[test]
fn a_marker_may_have_to_be_first() {
    let guard = Guard::new(constraint(Grammar::Regex("1".into())));
    let guard = guard.begin(Begin::AfterFirst("{\"a".into()));
    let mut watch = Watch::new(guard.clone());
    write(&mut watch, "\n {\"a");
    assert!(watch.is_on());
    let mut watch = Watch::new(guard);
    write(&mut watch, "x {\"a");
    assert!(!watch.is_on());
}
