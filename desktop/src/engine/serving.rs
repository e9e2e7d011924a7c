//! Answers while the model serves: they are requests of its scheduler.

use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::{Duration, Instant};

use warploom::provider::Device;
use warploom::{Error, Result};
use warploom_llm::chat::Template;
use warploom_llm::{Finish, Model};
use warploom_serve::{Ended, Failure, Job, Piece, Server};

use super::{Answered, Ask, OnProgress, Progress, prompt_tokens};

/// Time limit of an answer that the scheduler makes.
const LONGEST_ANSWER: Duration = Duration::from_secs(3600);

/// A server that runs on the loaded model.
pub(super) struct Served {
    pub(super) server: Server,
    pub(super) template: Option<Template>,
    /// Handle of the device that the server's session was opened on.
    pub(super) device: Arc<dyn Device>,
}

/// Answers through the scheduler of a server, as one of its requests.
pub(super) fn through_the_queue(
    served: &Served,
    model: &Model,
    ask: &Ask,
    on: &mut OnProgress<'_>,
) -> Result<Answered> {
    let prompt = prompt_tokens(model, served.template.as_ref(), ask)?;
    let begin = Instant::now();
    let job = Job::new(prompt, begin + LONGEST_ANSWER)
        .max_tokens(ask.max_tokens)
        .sampling(ask.sampling.clone());
    let ticket = served.server.queue().submit(job).map_err(failed)?;
    let (mut first, mut pieces) = (None, 0);
    loop {
        let step = match ticket.next(Duration::from_millis(50)) {
            None => on(Progress::Text("", pieces)),
            Some(Piece::Started { .. }) => {
                first = Some(Instant::now());
                ControlFlow::Continue(())
            }
            Some(Piece::Text(text)) => {
                pieces += 1;
                on(Progress::Text(&text, pieces))
            }
            Some(Piece::Done(done)) => {
                let finish = if done.ended == Ended::Stop { Finish::Stop } else { Finish::Length };
                return Ok(in_queue(begin, first, done.completion_tokens, finish));
            }
            Some(Piece::Failed(failure)) => return Err(failed(failure)),
            Some(_) => ControlFlow::Continue(()),
        };
        if step.is_break() {
            return Ok(in_queue(begin, first, pieces, Finish::Interrupted));
        }
    }
}

fn in_queue(begin: Instant, first: Option<Instant>, tokens: usize, finish: Finish) -> Answered {
    let first = first.unwrap_or_else(Instant::now);
    let after = first.elapsed().as_secs_f64();
    Answered {
        tokens,
        first_token: (first - begin).as_secs_f64(),
        rate: tokens.saturating_sub(1) as f64 / after.max(1e-9),
        finish: finish.name(),
        left_out: 0,
    }
}

fn failed(failure: Failure) -> Error {
    match failure {
        Failure::Full(limit) => Error::invalid(format!("{limit} requests are waiting already")),
        Failure::Late => Error::invalid("the answer took longer than an hour"),
        Failure::Stopping => Error::invalid("the server is being switched off"),
        Failure::Request(error) | Failure::Model(error) | Failure::Device(error) => error,
        other => Error::device(format!("{other:?}")),
    }
}
