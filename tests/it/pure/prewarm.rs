//! Plans that a session makes before they are needed.

use std::ops::ControlFlow;
use std::pin::pin;
use std::task::{Context, Poll, Waker};

use warploom::runtime::Runtime;
use warploom_llm::{GenerateOptions, Model, Sampling, Session};
use warploom_models::gguf::Access;

const MODEL: &str =
    concat!(env!("CARGO_MANIFEST_DIR"), "/../models/warploom-tiny-llama-Q4_K_M.gguf");
const PROMPT: &str = "Once upon a time there was a fox who";

fn session(expected: Option<(usize, Sampling)>) -> Session {
    let runtime = Runtime::builder().device("cpu").build().unwrap();
    let model = Model::open(MODEL, Access::Mmap).unwrap();
    let mut builder = Session::builder(model).runtime(runtime).context(64);
    if let Some((tokens, sampling)) = expected {
        builder = builder.prewarm(tokens, &sampling);
    }
    builder.build().unwrap()
}

fn text(session: &mut Session) -> String {
    let options =
        GenerateOptions::default().max_tokens(16).sampling(Sampling::default().temperature(0.0));
    session.generate(PROMPT, &options, &mut |_| ControlFlow::Continue(())).unwrap().text
}

#[test]
fn what_is_expected_is_compiled_before_it_is_asked_for_and_changes_no_text() {
    let compiles = |session: &Session| session.device().counters().compiles;
    let mut plain = session(None);
    assert_eq!(compiles(&plain), 0);
    let want = text(&mut plain);
    let all = compiles(&plain);

    let mut right = session(Some((9, Sampling::greedy())));
    let early = compiles(&right);
    assert!(0 < early && early <= all && right.plans() == 0, "{early} of {all}");
    assert_eq!(text(&mut right), want);
    assert_eq!((compiles(&right), right.plans()), (all, plain.plans()));

    // Another length and another choice are planned for when they come.
    let by_host = Sampling::greedy().repetition_penalty(1.1);
    let mut wrong = session(Some((1, by_host)));
    assert_eq!(text(&mut wrong), want);
    assert_eq!(wrong.plans(), plain.plans());
}

/// Between the uploads of two weights the thread may do other work.
#[test]
fn a_session_in_the_making_lets_other_futures_run() {
    let runtime = Runtime::builder().device("null").build().unwrap();
    let model = Model::open(MODEL, Access::Mmap).unwrap();
    let (layers, mut pauses, mut bytes) = (model.config().layers, 0, Vec::new());
    let mut context = Context::from_waker(Waker::noop());
    let builder = Session::builder(model.clone()).runtime(runtime).progress(|done, total| {
        assert!(done <= total);
        bytes.push(done);
    });
    let session = {
        let mut building = pin!(builder.build_async());
        loop {
            match building.as_mut().poll(&mut context) {
                Poll::Ready(session) => break session.unwrap(),
                Poll::Pending => pauses += 1,
            }
        }
    };
    assert!(pauses > layers, "{pauses} pauses in the upload of {layers} layers");
    assert!(session.device_bytes() > 0 && session.past() == 0);
    assert!(bytes.is_sorted() && bytes.len() > layers, "{bytes:?}");
}
