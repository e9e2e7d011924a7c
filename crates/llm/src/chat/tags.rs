//! The tags of a template, before there is a tree of them.

use minijinja::machinery::{Token, tokenize};
use minijinja::syntax::SyntaxConfig;

use warploom::error::{Error, Result};

/// Words and signs in one tag: how deep a tree can be that was not nested by brackets.
const MAX_TAG_TOKENS: usize = 1000;
/// `elif`s in a template: each is a level of the tree.
const MAX_ELIFS: usize = 100;

/// Jinja as the models' own library sets it up.
pub(super) fn syntax() -> Result<SyntaxConfig> {
    let built = SyntaxConfig::builder().trim_blocks(true).lstrip_blocks(true).build();
    built.map_err(|e| Error::unsupported("chat template: syntax").with_source(e))
}

/// A template that is none, with the line.
pub(super) fn bad_syntax(error: minijinja::Error) -> Error {
    let line = error.line().unwrap_or(0);
    let detail = error.detail().unwrap_or("is no template").to_owned();
    Error::bad_file(format!("chat template: line {line}: {detail}"))
}

/// `{% generation %}`, by which training marks what the model wrote, without its effect.
pub(super) fn without_generation_tags(source: &str) -> String {
    let mut out = String::with_capacity(source.len());
    let mut rest = source;
    while let Some(start) = rest.find("{%") {
        let (before, tag) = rest.split_at(start + 2);
        out.push_str(before);
        let word = tag.trim_start_matches(['-', '+']).trim_start();
        let name: String = word.chars().take_while(|c| c.is_ascii_alphanumeric()).collect();
        rest = tag;
        let instead = match name.as_str() {
            "generation" => "if true",
            "endgeneration" => "endif",
            _ => continue,
        };
        out.push_str(&tag[..tag.len() - word.len()]);
        out.push_str(instead);
        rest = &word[name.len()..];
    }
    out.push_str(rest);
    out
}

/// Refuses trees so deep that walking them needs too much stack, before one is built.
pub(super) fn check_tags(source: &str) -> Result<()> {
    let (mut tokens, mut elifs) = (0, 0);
    for token in tokenize(source, false, syntax()?) {
        let (token, span) = token.map_err(bad_syntax)?;
        match token {
            Token::VariableStart | Token::BlockStart | Token::TemplateData(_) => tokens = 0,
            Token::Ident("elif") => elifs += 1,
            _ => {}
        }
        tokens += 1;
        if tokens > MAX_TAG_TOKENS || elifs > MAX_ELIFS {
            return Err(Error::bad_file(format!(
                "chat template: line {}: a tag of more than {MAX_TAG_TOKENS} words, or more than \
                 {MAX_ELIFS} times elif",
                span.start_line
            )));
        }
    }
    Ok(())
}
