//! The conversation: sends messages, receives answers, keeps both on disk.

mod composer;
mod list;
mod messages;

use std::time::Instant;

use eframe::egui::{self, Panel, Ui};
use egui_commonmark::CommonMarkCache;

use crate::engine::{Answered, Ask, Turn};
use crate::format;
use crate::history::{Conversation, Message, Saved, Store};
use crate::host::Host;
use crate::notice::{Failure, Kind};
use crate::worker::Command;

/// Greatest width of the text, in points.
const WIDTH: f32 = 736.0;

/// An answer that is being generated.
#[derive(Debug)]
struct Running {
    number: u64,
    /// Id of its conversation, which may not be the one that is shown.
    conversation: String,
    text: String,
    tokens: usize,
    /// Seconds since the first token.
    since_first: f64,
    begin: Instant,
    /// Tokens of a long prompt that have been processed, and all.
    prompt: Option<(usize, usize)>,
    /// The answers that this one replaces, until it has text.
    replaced: Vec<Message>,
}

/// The panel of conversations.
pub struct Chat {
    store: Store,
    /// All conversations, the last changed first.
    all: Vec<Conversation>,
    /// Id of the one that is shown.
    shown: String,
    draft: String,
    /// Index of the message that the draft replaces.
    editing: Option<usize>,
    search: String,
    /// New title of the conversation that is shown, while the user writes it.
    renaming: Option<String>,
    deleting: bool,
    /// Where conversations were saved last.
    saved: Option<String>,
    /// Whether a narrow window shows the list instead of the messages.
    listing: bool,
    running: Option<Running>,
    answers: u64,
    cache: CommonMarkCache,
    /// Whether the message field is to have the focus.
    focus: bool,
    /// Whether it had it in the last frame.
    focused: bool,
    /// Its height in the last frame, in points.
    height: f32,
    /// Message whose text was copied last, and when.
    copied: Option<(usize, Instant)>,
}

impl Chat {
    /// Reads the conversations; the panel shows a new one. Files that could not be read are returned
    /// as one failure.
    pub fn new(store: Store) -> (Chat, Option<Failure>) {
        let (mut all, errors) = store.load();
        let new = store.create();
        let shown = new.id.clone();
        all.insert(0, new);
        let chat = Chat {
            store,
            all,
            shown,
            draft: String::new(),
            editing: None,
            search: String::new(),
            renaming: None,
            deleting: false,
            saved: None,
            listing: false,
            running: None,
            answers: 0,
            cache: CommonMarkCache::default(),
            focus: true,
            focused: false,
            height: 0.0,
            copied: None,
        };
        (chat, damaged(errors))
    }

    /// Returns the conversation that is shown.
    pub fn current(&self) -> Option<&Conversation> {
        self.all.iter().find(|conversation| conversation.id == self.shown)
    }

    fn find(&mut self, id: &str) -> Option<&mut Conversation> {
        self.all.iter_mut().find(|conversation| conversation.id == id)
    }

    fn current_mut(&mut self) -> Option<&mut Conversation> {
        let shown = self.shown.clone();
        self.find(&shown)
    }

    /// Returns whether an answer is being generated.
    pub fn is_answering(&self) -> bool {
        self.running.is_some()
    }

    /// Returns the number of tokens of the running answer.
    pub fn tokens(&self) -> usize {
        self.running.as_ref().map_or(0, |running| running.tokens)
    }

    /// Replaces the text in the message field.
    pub fn set_draft(&mut self, text: &str) {
        text.clone_into(&mut self.draft);
    }

    /// Removes the text of the message field, and returns it.
    pub fn take_draft(&mut self) -> String {
        std::mem::take(&mut self.draft)
    }

    /// Begins a new conversation, unless the one that is shown is empty.
    pub fn begin(&mut self) {
        self.editing = None;
        self.listing = false;
        self.focus = true;
        self.renaming = None;
        if self.current().is_some_and(|current| current.messages.is_empty()) {
            return;
        }
        self.all.retain(|conversation| !conversation.messages.is_empty());
        let new = self.store.create();
        self.shown.clone_from(&new.id);
        self.all.insert(0, new);
    }

    fn show(&mut self, id: &str) {
        id.clone_into(&mut self.shown);
        self.editing = None;
        self.renaming = None;
        self.focus = true;
    }

    /// Sends the text of the message field.
    pub fn send(&mut self, host: &mut Host<'_>) {
        let text = self.draft.trim().to_owned();
        if text.is_empty() || self.running.is_some() || host.loaded.is_none() {
            return;
        }
        self.draft.clear();
        let edited = self.editing.take();
        let Some(current) = self.current_mut() else { return };
        if let Some(at) = edited {
            current.messages.truncate(at);
        }
        current.messages.push(Message { user: true, text, stats: String::new() });
        host.notice.clear();
        self.save_shown(host);
        self.ask(Vec::new(), host);
    }

    /// Asks for another answer to the user's last message. The one before stays on disk until the new
    /// one has text.
    pub fn retry(&mut self, host: &mut Host<'_>) {
        if self.running.is_some() || host.loaded.is_none() {
            return;
        }
        let Some(current) = self.current_mut() else { return };
        let Some(asked) = current.messages.iter().rposition(|message| message.user) else { return };
        let replaced = current.messages.split_off(asked + 1);
        host.notice.clear();
        self.ask(replaced, host);
    }

    /// Copies the conversation up to a message into a new one, and shows that.
    fn branch(&mut self, at: usize, host: &mut Host<'_>) {
        let Some(current) = self.current() else { return };
        let messages = current.messages[..=at.min(current.messages.len() - 1)].to_vec();
        let title = Some(format!("{} (branch)", current.title()));
        let mut new = Conversation { messages, title, ..self.store.create() };
        self.save(&mut new, host);
        let id = new.id.clone();
        self.all.insert(0, new);
        self.show(&id);
    }

    fn ask(&mut self, replaced: Vec<Message>, host: &mut Host<'_>) {
        let Some(current) = self.current() else { return };
        let turns = current.messages.iter();
        let turns = turns.map(|m| Turn { user: m.user, text: m.text.clone() }).collect();
        let system = host.settings.system.trim();
        let ask = Ask {
            system: (!system.is_empty()).then(|| system.to_owned()),
            turns,
            sampling: host.settings.sampling(self.answers),
            max_tokens: host.settings.max_tokens,
        };
        self.answers += 1;
        host.worker.send(Command::Answer(self.answers, ask));
        self.running = Some(Running {
            number: self.answers,
            conversation: self.shown.clone(),
            text: String::new(),
            tokens: 0,
            since_first: 0.0,
            begin: Instant::now(),
            prompt: None,
            replaced,
        });
    }

    fn save(&mut self, conversation: &mut Conversation, host: &mut Host<'_>) {
        let before = conversation.id.clone();
        match self.store.save(conversation) {
            Ok(Saved::InPlace) => {}
            Ok(Saved::AsCopy) => {
                if self.shown == before {
                    self.shown.clone_from(&conversation.id);
                }
                if let Some(running) = self.running.as_mut().filter(|r| r.conversation == before) {
                    running.conversation.clone_from(&conversation.id);
                }
                let text = format!("{before}.json changed since it was read here");
                host.notice.show(Failure::new(Kind::Copied, text));
            }
            Err(error) => host.notice.show(error.into()),
        }
    }

    fn save_shown(&mut self, host: &mut Host<'_>) {
        let shown = self.shown.clone();
        self.save_id(&shown, host);
    }

    /// Writes a conversation, and moves it to the head of the list.
    fn save_id(&mut self, id: &str, host: &mut Host<'_>) {
        let Some(at) = self.all.iter().position(|conversation| conversation.id == id) else {
            return;
        };
        let mut conversation = self.all.remove(at);
        self.save(&mut conversation, host);
        self.all.insert(0, conversation);
    }

    fn running(&mut self, number: u64) -> Option<&mut Running> {
        self.running.as_mut().filter(|running| running.number == number)
    }

    /// Receives how much of a long prompt has been processed.
    pub fn on_prompt(&mut self, number: u64, done: usize, total: usize) {
        if let Some(running) = self.running(number) {
            running.prompt = Some((done, total));
        }
    }

    /// Receives more text of the running answer.
    pub fn on_text(&mut self, number: u64, text: &str, tokens: usize, since_first: f64) {
        if let Some(running) = self.running(number) {
            running.text.push_str(text);
            running.tokens = tokens;
            running.since_first = since_first;
            running.prompt = None;
        }
    }

    /// Receives the end of an answer.
    pub fn on_answered(
        &mut self,
        number: u64,
        done: Result<Answered, Failure>,
        host: &mut Host<'_>,
    ) {
        let Some(running) = self.running.take_if(|running| running.number == number) else {
            return;
        };
        let (stats, failure) = match done {
            Ok(answered) => (statistics(&answered), None),
            Err(failure) => ("broken off".to_owned(), Some(failure)),
        };
        self.keep(running, stats, failure.is_some(), host);
        if let Some(failure) = failure {
            host.notice.show(failure);
        }
    }

    /// Adds an answer to its conversation. One that failed without text leaves the answer that it was
    /// to replace, or the question, so that it can be asked again.
    fn keep(&mut self, running: Running, stats: String, failed: bool, host: &mut Host<'_>) {
        let Some(conversation) = self.find(&running.conversation) else { return };
        if failed && running.text.trim().is_empty() {
            if !running.replaced.is_empty() {
                conversation.messages.extend(running.replaced);
                self.save_id(&running.conversation, host);
            }
            return;
        }
        conversation.messages.push(Message { user: false, text: running.text, stats });
        self.save_id(&running.conversation, host);
    }

    /// Keeps what the running answer has so far: the window is being closed.
    pub fn on_exit(&mut self, host: &mut Host<'_>) {
        if let Some(running) = self.running.take() {
            self.keep(running, "the window was closed".to_owned(), true, host);
        }
    }

    /// Ends the running answer as failed: its thread is gone.
    pub fn on_stopped(&mut self, failure: Failure, host: &mut Host<'_>) {
        match self.running.as_ref().map(|running| running.number) {
            Some(number) => self.on_answered(number, Err(failure), host),
            None => host.notice.show(failure),
        }
    }

    /// Draws the panel.
    pub fn ui(&mut self, ui: &mut Ui, host: &mut Host<'_>) {
        if ui.available_width() > 700.0 {
            let side = Panel::left("conversations").resizable(true).default_size(216.0);
            side.size_range(160.0..=360.0).show(ui, |ui| self.list(ui, host));
        } else {
            self.narrow(ui);
            if self.listing {
                egui::CentralPanel::no_frame().show(ui, |ui| self.list(ui, host));
                self.confirm_delete(ui, host);
                return;
            }
        }
        let margin = egui::Margin::symmetric(16, 12);
        let frame = egui::Frame::new().inner_margin(margin);
        Panel::bottom("composer").show_separator_line(false).frame(frame).show(ui, |ui| {
            centred(ui, |ui| self.composer(ui, host));
        });
        // The edge of a narrow window.
        let frame = egui::Frame::new().inner_margin(egui::Margin::symmetric(12, 0));
        egui::CentralPanel::no_frame().frame(frame).show(ui, |ui| self.messages(ui, host));
        self.confirm_delete(ui, host);
    }
}

impl Chat {
    /// Draws what a narrow window has in the place of the list.
    fn narrow(&mut self, ui: &mut Ui) {
        let frame = egui::Frame::new().inner_margin(egui::Margin::symmetric(12, 4));
        Panel::top("conversation").show_separator_line(false).frame(frame).show(ui, |ui| {
            ui.horizontal(|ui| {
                let text = if self.listing { "Back" } else { "Conversations" };
                if ui.button(text).clicked() {
                    self.listing = !self.listing;
                }
                let title = self.current().map(Conversation::title).unwrap_or_default();
                ui.add(egui::Label::new(egui::RichText::new(title).weak()).truncate());
            });
        });
    }
}

/// Draws contents in a column of limited width, in the middle.
fn centred<R>(ui: &mut Ui, contents: impl FnOnce(&mut Ui) -> R) -> R {
    let room = ui.available_width();
    let width = room.min(WIDTH);
    let side = ((room - width) / 2.0).max(0.0);
    ui.horizontal(|ui| {
        ui.add_space(side);
        ui.vertical(|ui| {
            ui.set_width(width);
            contents(ui)
        })
        .inner
    })
    .inner
}

/// Returns the failure that names files of conversations that could not be read.
fn damaged(errors: Vec<warploom::Error>) -> Option<Failure> {
    let lines: Vec<String> = errors.into_iter().map(|e| Failure::from(e).message).collect();
    (!lines.is_empty()).then(|| Failure::new(Kind::Damaged, lines.join("\n")))
}

/// Returns the line below an answer.
fn statistics(answered: &Answered) -> String {
    let plural = if answered.tokens == 1 { "" } else { "s" };
    let mut parts = vec![format!("{} token{plural}", answered.tokens)];
    if answered.tokens > 1 {
        parts.push(format::speed(answered.rate));
    }
    parts.push(format!("first after {}", format::seconds(answered.first_token)));
    match answered.finish {
        "interrupted" => parts.push("stopped".into()),
        "length" => parts.push("length limit".into()),
        "context" => parts.push("the context is full".into()),
        _ => {}
    }
    if answered.left_out > 0 {
        parts.push(format!("{} oldest messages left out", answered.left_out));
    }
    parts.join(" · ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_line_below_an_answer_has_its_figures() {
        let answered =
            Answered { tokens: 42, first_token: 0.1, rate: 120.4, finish: "length", left_out: 2 };
        assert_eq!(
            statistics(&answered),
            "42 tokens · 120 tokens/s · first after 100.0 ms · length limit · 2 oldest messages \
             left out"
        );
        let one = Answered { tokens: 1, finish: "interrupted", left_out: 0, ..answered };
        assert_eq!(statistics(&one), "1 token · first after 100.0 ms · stopped");
    }
}
