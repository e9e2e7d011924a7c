//! Lazy sync: host cost of a token, counted on the device that executes nothing.

use std::sync::Arc;

use warploom::engine::Registry;
use warploom::plan::{Options, Plan};
use warploom::provider::{Device, NullProvider, OpenOptions};
use warploom::runtime::{Runtime, SyncMode};
use warploom_core::base::ShapeClass;
use warploom_llm::{DecoderOutput, Model, Output, PAST, SEQ, Session, StepOutput, StepRequest};
use warploom_models::gguf::Access;

const MODEL: &str =
    concat!(env!("CARGO_MANIFEST_DIR"), "/../models/warploom-tiny-llama-Q4_K_M.gguf");

fn session(sync: SyncMode, budget: Option<u64>) -> (Arc<dyn Device>, warploom::Result<Session>) {
    let device = NullProvider::device(&OpenOptions::default());
    let runtime = Runtime::on(device.clone(), sync, budget).unwrap();
    let model = Model::open(MODEL, Access::Mmap).unwrap();
    (device, Session::builder(model).runtime(runtime).build())
}

fn step(session: &mut Session, tokens: &[u32], output: Output<'_>) -> warploom::Result<StepOutput> {
    session.step(StepRequest::tokens(0, tokens, output))
}

/// Differences of the counters for one more token.
fn one_token(device: &Arc<dyn Device>, session: &mut Session) -> [u64; 5] {
    let before = device.counters();
    step(session, &[7], Output::Greedy).unwrap().token().unwrap();
    let after = device.counters();
    [
        after.submits - before.submits,
        after.waits - before.waits,
        after.allocations - before.allocations,
        after.compiles - before.compiles,
        after.downloaded_bytes - before.downloaded_bytes,
    ]
}

#[test]
fn a_steady_token_is_one_submit_one_wait_and_no_allocation() {
    let (device, session) = session(SyncMode::Lazy, None);
    let mut session = session.unwrap();
    step(&mut session, &[1, 2, 3, 4, 5], Output::Greedy).unwrap();
    assert_ne!(one_token(&device, &mut session), [1, 1, 0, 0, 4], "the first one makes its plan");
    for _ in 0..3 {
        assert_eq!(one_token(&device, &mut session), [1, 1, 0, 0, 4]);
    }
}

/// The parts of a merged product are read in place, by rotary positions too.
#[test]
fn a_long_prompt_has_no_copies_either() {
    let model = Model::open(MODEL, Access::Mmap).unwrap();
    let graph = model.graph(512, DecoderOutput::Greedy).unwrap();
    let class = ShapeClass::new().with(SEQ, 65, 512).with(PAST, 0, 512);
    let (device, registry) = (NullProvider::device(&OpenOptions::default()), Registry::builtin());
    let plan = Plan::new(&graph, &class, device.profile(), &Options::new(&registry)).unwrap();
    let copies = plan.steps.iter().filter(|step| step.engine.as_str() == "fused.copy").count();
    assert_eq!(copies, 0, "{}", plan.explain());
    assert!(plan.steps.len() <= 8 * 9 + 4, "{}", plan.explain());
}

/// Weights that plans merge are uploaded as one, so no plan needs a copy.
#[test]
fn merged_weights_lie_on_the_device_once() {
    let (_, session) = session(SyncMode::Lazy, None);
    let mut session = session.unwrap();
    let before = session.device_bytes();
    for output in [Output::Nothing, Output::Logits, Output::Greedy] {
        for tokens in [1, 5, 20, 80] {
            session.truncate(0).unwrap();
            step(&mut session, &vec![3; tokens], output).unwrap();
        }
    }
    assert_eq!(session.device_bytes(), before);
}

#[test]
fn a_new_length_of_a_class_plans_nothing_and_compiles_nothing() {
    let (device, session) = session(SyncMode::Lazy, None);
    let mut session = session.unwrap();
    for (class, lengths) in [[2, 3, 5, 8], [9, 17, 40, 64], [65, 66, 200, 511]].iter().enumerate() {
        for (i, length) in lengths.iter().enumerate() {
            let before = (session.plans(), device.counters());
            session.truncate(0).unwrap();
            step(&mut session, &vec![7; *length], Output::Greedy).unwrap();
            let after = device.counters();
            let planned = session.plans() - before.0;
            let compiled = after.compiles - before.1.compiles;
            let allocated = after.allocations - before.1.allocations;
            match i {
                0 => assert_eq!((planned, session.plans()), (1, class + 1), "{length} tokens"),
                _ => assert_eq!((planned, compiled, allocated), (0, 0, 0), "{length} tokens"),
            }
        }
    }
}

#[test]
fn a_plan_is_data() {
    let (_, session) = session(SyncMode::Lazy, None);
    let plan = session.unwrap().decode_plan(DecoderOutput::Logits).unwrap();
    let json = serde_json::to_string(&plan).unwrap();
    assert!(serde_json::from_str::<warploom::plan::Plan>(&json).unwrap() == plan);
}

#[test]
fn eager_waits_after_every_command() {
    let (device, session) = session(SyncMode::Eager, None);
    let mut session = session.unwrap();
    one_token(&device, &mut session);
    let dispatches =
        session.decode_plan(DecoderOutput::Greedy).unwrap().recording.commands.len() as u64;
    assert_eq!(one_token(&device, &mut session), [dispatches, dispatches, 0, 0, 4]);
}

#[test]
fn a_model_beyond_the_budget_is_refused_before_the_upload() {
    let (device, session) = session(SyncMode::Lazy, Some(4 << 20));
    let error = session.err().unwrap();
    assert!(error.is_out_of_memory(), "{error}");
    assert!(error.to_string().contains("need") && error.to_string().contains("4194304"), "{error}");
    assert_eq!(device.counters().uploaded_bytes, 0);
}

#[test]
fn a_prompt_beyond_the_context_changes_nothing() {
    let (_, session) = session(SyncMode::Lazy, None);
    let mut session = session.unwrap();
    step(&mut session, &[1, 2], Output::Nothing).unwrap();
    let error = step(&mut session, &vec![1; 511], Output::Greedy).unwrap_err().to_string();
    assert!(error.contains("511 tokens after 2") && error.contains("512"), "{error}");
    assert_eq!(session.past(), 2);
    assert!(step(&mut session, &[4096], Output::Greedy).is_err());
}

#[test]
fn a_long_prompt_is_cut_in_pieces_and_reads_once() {
    let (device, session) = session(SyncMode::Lazy, None);
    let mut session = session.unwrap();
    let before = device.counters();
    step(&mut session, &vec![3; 512], Output::Greedy).unwrap();
    assert_eq!(session.past(), 512);
    assert_eq!(device.counters().downloaded_bytes - before.downloaded_bytes, 4);
}
