//! Tool calls: the formats in which models write them, as a table, and what follows from it.
//!
//! `grammar` constrains an answer to calls in a format, `call` reads a call from text as it
//! arrives, `split` separates an answer into reasoning, content and calls (`harmony` does so for gpt-oss), and `plain` writes tools
//! and calls as ordinary messages for templates that know none.

mod call;
pub(super) mod grammar;
mod harmony;
pub(super) mod plain;
mod split;

#[cfg(test)]
mod tests;

use serde_json::Value;

pub(super) use split::{Delta, Splitter, Thoughts};

/// A function that the model may call.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Tool {
    pub(super) name: String,
    /// Schema of the arguments; `None` if there are none.
    pub(super) parameters: Option<Value>,
    /// Whether a schema that cannot be followed is an error.
    pub(super) strict: bool,
    /// The tool as JSON, for templates.
    pub(super) json: String,
}

/// How the text of a call is laid out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Body {
    /// `{"name": .., KEY: {..}}`; the value is the key of the arguments.
    Json(&'static str),
    /// A list of such objects.
    List(&'static str),
    /// The name, this text, and the arguments as JSON.
    Named(&'static str),
    /// `<function=NAME>`, a `<parameter=KEY>` for each argument, `</function>`.
    Xml,
    /// A message of gpt-oss, whose recipient is the tool.
    Harmony,
}

/// A format in which a model writes calls.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Format {
    /// Texts in a chat template by which the format is known: all of them.
    known_by: &'static [&'static str],
    /// Text before each call; empty if an answer is either text or a call.
    pub(super) start: &'static str,
    /// Text after each call.
    pub(super) end: &'static str,
    pub(super) body: Body,
    /// Number of letters in the id of a call; 0 for a prefix and 24 hexadecimal digits.
    pub(super) id_letters: usize,
}

/// The format of Hermes and Qwen, and of models whose template knows no tools.
pub(super) const HERMES: Format = Format {
    known_by: &["<tool_call>"],
    start: "<tool_call>",
    end: "</tool_call>",
    body: Body::Json("arguments"),
    id_letters: 0,
};

/// The format of gpt-oss.
pub(super) const HARMONY: Format = Format {
    known_by: &[harmony::CHANNEL, harmony::MESSAGE, harmony::CALL],
    start: harmony::CHANNEL,
    end: harmony::CALL,
    body: Body::Harmony,
    id_letters: 0,
};

/// The formats; of several that a template knows, the first one is used.
static FORMATS: [Format; 6] = [
    HARMONY,
    // Mistral's templates refuse ids of other lengths.
    Format {
        known_by: &["[TOOL_CALLS]", "[ARGS]"],
        start: "[TOOL_CALLS]",
        end: "",
        body: Body::Named("[ARGS]"),
        id_letters: 9,
    },
    Format {
        known_by: &["[TOOL_CALLS]"],
        start: "[TOOL_CALLS]",
        end: "",
        body: Body::List("arguments"),
        id_letters: 9,
    },
    // Qwen3-Coder and Qwen3.5.
    Format {
        known_by: &["<tool_call>", "<function=", "<parameter="],
        start: "<tool_call>",
        end: "</tool_call>",
        body: Body::Xml,
        id_letters: 0,
    },
    HERMES,
    // Llama 3.1 and later.
    Format {
        known_by: &["\"parameters\"", "python_tag"],
        start: "",
        end: "",
        body: Body::Json("parameters"),
        id_letters: 0,
    },
];

impl Format {
    /// Returns the format of a chat template that knows tools; `None` if none of the table is in
    /// it.
    pub(super) fn of_template(source: &str) -> Option<&'static Format> {
        FORMATS.iter().find(|format| format.is_known(source))
    }

    /// Returns whether a chat template writes this format.
    pub(super) fn is_known(&self, source: &str) -> bool {
        self.known_by.iter().all(|text| source.contains(text))
    }

    /// Returns whether all calls of an answer follow one marker.
    pub(super) fn is_list(&self) -> bool {
        matches!(self.body, Body::List(_))
    }

    /// Yields the texts that may be control tokens, whose text must be visible to be found.
    pub(super) fn markers(&self) -> impl Iterator<Item = &'static str> {
        use harmony::{CONSTRAIN, END, MESSAGE, START};
        let more = match self.body {
            Body::Named(text) => [text, "", "", ""],
            Body::Harmony => [MESSAGE, END, START, CONSTRAIN],
            _ if self.start.is_empty() => [split::PYTHON_TAG, "", "", ""],
            _ => [""; 4],
        };
        [self.start, self.end].into_iter().chain(more).filter(|text| !text.is_empty())
    }

    /// Returns the id of a call, from a number that is unique to it.
    pub(super) fn id(&self, number: u64) -> String {
        // Consecutive numbers get ids that do not look alike.
        let mixed = number.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ (number >> 7);
        match self.id_letters {
            0 => format!("call_{mixed:016x}{:08x}", number as u32),
            letters => {
                let digits = format!("{mixed:020}");
                digits.chars().rev().take(letters).collect()
            }
        }
    }
}

/// Returns the length of the longest end of `text` with which `marker` begins.
fn partial(text: &str, marker: &str) -> usize {
    let longest = marker.len().saturating_sub(1).min(text.len());
    let ends = |length: &usize| text.as_bytes().ends_with(&marker.as_bytes()[..*length]);
    (1..=longest).rev().find(ends).unwrap_or(0)
}
