//! Futures that a multi-threaded executor may move between threads: compiling is the test.

use std::ops::ControlFlow;

use warploom::runtime::Runtime;
use warploom::{Result, Tensor};
use warploom_llm::chat::{Chat, ChatOptions};
use warploom_llm::{
    GenerateOptions, Output, PerplexityOptions, Session, SessionBuilder, StepRequest,
};

fn is_send<T: Send>(_: &T) {}

/// Never called.
#[expect(dead_code, reason = "its types are the test")]
async fn futures(
    session: &mut Session,
    chat: &mut Chat,
    builder: SessionBuilder<'_>,
    tensor: &Tensor,
    options: (&GenerateOptions, &ChatOptions, &PerplexityOptions),
) -> Result<()> {
    let mut on_event = |_: warploom_llm::Event<'_>| ControlFlow::Continue(());
    is_send(&session.generate_async("", options.0, &mut on_event));
    is_send(&chat.send_async("", options.1, &mut on_event));
    is_send(&session.perplexity_async(&[], options.2, &mut |_, _| ControlFlow::Continue(())));
    is_send(&session.step_async(StepRequest::tokens(0, &[], Output::Greedy)));
    is_send(&builder.build_async());
    is_send(&tensor.to_vec_async::<f32>());
    is_send(&Runtime::builder().build_async());
    Ok(())
}
