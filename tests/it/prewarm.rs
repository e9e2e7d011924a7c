//! Plans that a session makes before they are needed.

use std::ops::ControlFlow;

use warploom::runtime::Runtime;
use warploom_llm::{Expected, GenerateOptions, Model, Sampling, Session, SessionOptions, Wanted};
use warploom_models::gguf::Access;

const MODEL: &str =
    concat!(env!("CARGO_MANIFEST_DIR"), "/../models/warploom-tiny-llama-Q4_K_M.gguf");
const PROMPT: &str = "Once upon a time there was a fox who";

fn session(expected: Option<Expected>) -> Session {
    let runtime = Runtime::builder().device("cpu").build().unwrap();
    let model = Model::open(MODEL, Access::Mmap).unwrap();
    let options = SessionOptions { context: Some(64), expected, ..Default::default() };
    Session::new(runtime, model, options, &mut |_, _| {}).unwrap()
}

fn text(session: &mut Session) -> String {
    let options = GenerateOptions {
        max_tokens: 16,
        sampling: Sampling { temperature: 0.0, ..Sampling::default() },
        parse_special: false,
        ignore_stop: false,
    };
    session.generate_blocking(PROMPT, &options, &mut |_| ControlFlow::Continue(())).unwrap().text
}

#[test]
fn what_is_expected_is_compiled_before_it_is_asked_for_and_changes_no_text() {
    let compiles = |session: &Session| session.device().counters().compiles;
    let mut plain = session(None);
    assert_eq!(compiles(&plain), 0);
    let want = text(&mut plain);
    let all = compiles(&plain);

    let mut right = session(Some(Expected { tokens: 9, wanted: Wanted::Token }));
    let early = compiles(&right);
    assert!(0 < early && early <= all && right.plans() == 0, "{early} of {all}");
    assert_eq!(text(&mut right), want);
    assert_eq!((compiles(&right), right.plans()), (all, plain.plans()));

    // Another length and another choice are planned when they occur.
    let mut wrong = session(Some(Expected { tokens: 1, wanted: Wanted::Logits }));
    assert_eq!(text(&mut wrong), want);
    assert_eq!(wrong.plans(), plain.plans());
}
