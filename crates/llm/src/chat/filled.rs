//! Plain templates with names of fields in braces, such as those of rerankers.

use std::ops::Range;

use super::injection_guard::Names;
use super::template::Prompt;
use crate::tokenizer::Tokenizer;

/// Fills a template with texts, each in the place of its name. A name inside a text is text, and no
/// byte of a text becomes part of a control token.
pub(crate) fn filled(template: &str, fields: &[(&str, &str)], tokenizer: &Tokenizer) -> Prompt {
    let (mut text, mut outside): (String, Vec<Range<usize>>) = (String::new(), Vec::new());
    let mut rest = template;
    loop {
        let next = fields.iter().filter_map(|field| Some((rest.find(field.0)?, field)));
        let Some((at, (name, value))) = next.min_by_key(|(at, _)| *at) else { break };
        text.push_str(&rest[..at]);
        outside.push(text.len()..text.len() + value.len());
        text.push_str(value);
        rest = &rest[at + name.len()..];
    }
    text.push_str(rest);
    let marks = Names::new(tokenizer).marks(&text, &outside);
    Prompt { text, marks }
}
