//! Runs the jobs of a request, and answers it whole or as a stream of events.
//!
//! Nothing here has a task or a thread of its own: the connection polls the answer. If the client
//! goes, `hyper` drops it, with it the ticket, and the scheduler frees the sequences.

use std::convert::Infallible;
use std::time::Instant;

use axum::body::Body;
use axum::http::header;
use axum::response::{IntoResponse, Response};
use futures_util::stream;
use serde_json::Value;

use super::after;
use super::answer::{Event, Writer, writer};
use super::choice::Choice;
use super::error::ApiError;
use super::prepare::Prepared;
use super::queue::{Piece, Ticket};
use super::service::Shared;

/// When a response must have been sent, in its extensions.
#[derive(Clone, Copy, Debug)]
pub(super) struct Due(pub(super) Instant);

/// Runs the jobs of a request.
///
/// # Errors
/// Those of the queue and of answers that fail before their first token.
pub(super) async fn generate(shared: &Shared, prepared: Prepared) -> Result<Response, ApiError> {
    let Prepared { jobs, replies, about } = prepared;
    let deadline = jobs.first().map_or_else(Instant::now, |job| job.deadline);
    let ticket = shared.queue.submit_all(jobs)?;
    let stream = about.stream;
    let writer = writer(shared, about);
    match stream {
        true => {
            let mut response = events(writer, replies, ticket).await?;
            let due = after(deadline, shared.options.limits.write);
            response.extensions_mut().insert(Due(due));
            Ok(response)
        }
        false => Ok(json(&whole(writer.as_ref(), replies, ticket).await?)),
    }
}

/// Returns a response with JSON.
pub(super) fn json(value: &Value) -> Response {
    ([(header::CONTENT_TYPE, "application/json")], value.to_string()).into_response()
}

async fn whole(
    writer: &dyn Writer,
    mut replies: Vec<Choice>,
    mut ticket: Ticket,
) -> Result<Value, ApiError> {
    while replies.iter().any(|reply| reply.done().is_none()) {
        let (index, piece) = ticket.next_of_all_async().await;
        if let Piece::Failed(failure) = piece {
            return Err(failure.into());
        }
        let Some(reply) = replies.get_mut(index) else { continue };
        for delta in reply.take(piece) {
            reply.add(&delta);
        }
    }
    Ok(writer.whole(&replies))
}

/// Streams answers. The head is sent with the first token, so that an earlier failure can have its
/// own status.
async fn events(
    writer: Box<dyn Writer>,
    mut replies: Vec<Choice>,
    mut ticket: Ticket,
) -> Result<Response, ApiError> {
    let next = ticket.next_of_all_async().await;
    if let (_, Piece::Failed(failure)) = next {
        return Err(failure.into());
    }
    // The first events may contain the number of tokens that were cached.
    if let (index, Piece::Started { cached_tokens }) = next
        && let Some(reply) = replies.get_mut(index)
    {
        reply.take(Piece::Started { cached_tokens });
    }
    let events = Events { writer, replies, ticket, next: Some(next), at: At::Begin };
    let texts = stream::unfold(events, |mut events| async {
        let text = events.next().await?;
        Some((Ok::<_, Infallible>(text), events))
    });
    let head = [(header::CONTENT_TYPE, "text/event-stream"), (header::CACHE_CONTROL, "no-cache")];
    Ok((head, Body::from_stream(texts)).into_response())
}

/// A stream of events, and how far it is.
struct Events {
    writer: Box<dyn Writer>,
    replies: Vec<Choice>,
    ticket: Ticket,
    /// The first part, for which the head waited.
    next: Option<(usize, Piece)>,
    at: At,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum At {
    Begin,
    Middle,
    End,
}

impl Events {
    /// Waits for the next events, which are sent together.
    async fn next(&mut self) -> Option<String> {
        if self.at == At::Begin {
            self.at = At::Middle;
            let first = self.writer.begin(&self.replies);
            if !first.is_empty() {
                return Some(Event::written(&first));
            }
        }
        while self.at == At::Middle {
            if self.replies.iter().all(|reply| reply.done().is_some()) {
                self.at = At::End;
                return Some(Event::written(&self.writer.end(&self.replies)));
            }
            let (index, piece) = match self.next.take() {
                Some(next) => next,
                None => self.ticket.next_of_all_async().await,
            };
            if let Piece::Failed(failure) = piece {
                self.at = At::End;
                return Some(Event::written(&self.writer.failed(&failure.into())));
            }
            let events = self.part(index, piece);
            if !events.is_empty() {
                return Some(Event::written(&events));
            }
        }
        None
    }

    /// Returns the events of a part of an answer.
    fn part(&mut self, index: usize, piece: Piece) -> Vec<Event> {
        let Some(reply) = self.replies.get_mut(index) else { return Vec::new() };
        let mut events = Vec::new();
        for delta in reply.take(piece) {
            reply.add(&delta);
            let logprobs = reply.unsent();
            events.extend(self.writer.part(reply, &delta, &logprobs));
        }
        if let Some(done) = reply.done().copied() {
            let logprobs = reply.unsent();
            events.extend(self.writer.last(reply, &done, &logprobs));
        }
        events
    }
}
