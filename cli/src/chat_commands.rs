//! Slash commands of `warploom chat`.

use crate::args::{not_negative, positive, share};
use crate::numbers;
use std::path::PathBuf;
use warploom_llm::sampler::Sampling;

pub(crate) const HELP: &str = "\
/help              list the commands
/system [TEXT]     show or set the system message; /system - removes it
/reset             forget the conversation, keep the system message
/undo              take back the last message and its answer
/retry             answer the last message again
/set [NAME VALUE]  show or set: temperature, top-k, top-p, min-p, repeat-penalty,
                   repeat-last-n, seed, max-tokens
/stats             show speed and memory so far
/tokens            show how full the context is
/save FILE         write the conversation to a file, as JSON
/load FILE         continue a conversation from a file
/exit              leave (also Ctrl-D)";

/// A parsed line of input.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Line {
    /// A message to the model.
    Message(String),
    Nothing,
    Help,
    /// Shows the system message (`None`), removes it (`Some(None)`) or sets it.
    System(Option<Option<String>>),
    Reset,
    Undo,
    Retry,
    Set(Option<(String, String)>),
    Stats,
    Tokens,
    Save(PathBuf),
    Load(PathBuf),
    Exit,
}

/// Parses a line. Two slashes begin a message that starts with one.
pub(crate) fn parse(line: &str) -> Result<Line, String> {
    let trimmed = line.trim();
    if trimmed.is_empty() {
        return Ok(Line::Nothing);
    }
    if let Some(message) = trimmed.strip_prefix("//") {
        return Ok(Line::Message(format!("/{message}")));
    }
    let Some(command) = trimmed.strip_prefix('/') else {
        return Ok(Line::Message(line.to_owned()));
    };
    let (name, rest) = command.split_once(char::is_whitespace).unwrap_or((command, ""));
    let rest = rest.trim();
    let file = |make: fn(PathBuf) -> Line| match rest {
        "" => Err(format!("/{name} needs the name of a file")),
        file => Ok(make(file.into())),
    };
    let bare = |line: Line| match rest {
        "" => Ok(line),
        _ => Err(format!("/{name} takes no argument")),
    };
    match name {
        "help" | "?" => bare(Line::Help),
        "system" => Ok(Line::System(match rest {
            "" => None,
            "-" => Some(None),
            text => Some(Some(text.to_owned())),
        })),
        "reset" | "clear" => bare(Line::Reset),
        "undo" => bare(Line::Undo),
        "retry" => bare(Line::Retry),
        "set" => match rest.split_once(char::is_whitespace) {
            Some((name, value)) => {
                let value = value.trim().trim_start_matches('=').trim();
                Ok(Line::Set(Some((name.replace('_', "-"), value.to_owned()))))
            }
            None if rest.is_empty() => Ok(Line::Set(None)),
            None => Err(format!("/set {rest} needs a value")),
        },
        "stats" => bare(Line::Stats),
        "tokens" => bare(Line::Tokens),
        "save" => file(Line::Save),
        "load" => file(Line::Load),
        "exit" | "quit" | "q" => bare(Line::Exit),
        _ => Err(format!("there is no /{name}; /help lists the commands")),
    }
}

/// Sets a value, as `/set` does.
pub(crate) fn set(
    name: &str,
    value: &str,
    sampling: &mut Sampling,
    max_tokens: &mut usize,
) -> Result<(), String> {
    let say = |words: String| format!("{name} {words}");
    match name {
        "temperature" => sampling.temperature = not_negative(value).map_err(say)?,
        "top-k" => sampling.top_k = numbers::top_k(value).map_err(say)?,
        "top-p" => sampling.top_p = share(value).map_err(say)?,
        "min-p" => sampling.min_p = share(value).map_err(say)?,
        "repeat-penalty" => sampling.repetition_penalty = positive(value).map_err(say)?,
        "repeat-last-n" => sampling.repeat_last_n = numbers::last_n(value).map_err(say)?,
        "seed" => {
            let seed = numbers::seed(value).map_err(say)?;
            sampling.seed = seed.fixed().unwrap_or_else(numbers::another_seed);
        }
        "max-tokens" => *max_tokens = numbers::tokens(value).map_err(say)?,
        _ => return Err(format!("there is no setting {name}; /help lists them")),
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_read() {
        let rows = [
            ("Hello there", Line::Message("Hello there".into())),
            ("  indented", Line::Message("  indented".into())),
            ("//etc is a path", Line::Message("/etc is a path".into())),
            ("   ", Line::Nothing),
            ("/help", Line::Help),
            ("/system", Line::System(None)),
            ("/system Be  brief. ", Line::System(Some(Some("Be  brief.".into())))),
            ("/system -", Line::System(Some(None))),
            ("/set temperature 0.7", Line::Set(Some(("temperature".into(), "0.7".into())))),
            ("/set top_k = 3", Line::Set(Some(("top-k".into(), "3".into())))),
            ("/set", Line::Set(None)),
            ("/save a b.json", Line::Save("a b.json".into())),
            ("/exit", Line::Exit),
        ];
        for (line, want) in rows {
            assert_eq!(parse(line), Ok(want), "{line}");
        }
        let wrong = [
            ("/sing", "no /sing"),
            ("/save", "name of a file"),
            ("/set seed", "needs a value"),
            ("/undo 2", "no argument"),
            ("/", "no /"),
        ];
        for (line, words) in wrong {
            assert!(parse(line).unwrap_err().contains(words), "{line}");
        }
    }

    #[test]
    fn every_setting_of_the_help_can_be_set_and_wrong_values_are_reported() {
        let (mut sampling, mut max) = (Sampling::default(), 1);
        let rows = [
            ("temperature", "0.5", "hot"),
            ("top-k", "7", "-2"),
            ("top-p", "0.5", "1.5"),
            ("min-p", "0.25", "x"),
            ("repeat-penalty", "1.5", "0"),
            ("repeat-last-n", "9", "x"),
            ("seed", "11", "1.5"),
            ("max-tokens", "33", "0"),
        ];
        for (name, value, wrong) in rows {
            assert!(HELP.contains(name), "{name}");
            set(name, value, &mut sampling, &mut max).unwrap();
            let error = set(name, wrong, &mut sampling, &mut max).unwrap_err();
            assert!(error.starts_with(name), "{error}");
        }
        let want = Sampling::default()
            .temperature(0.5)
            .top_k(7)
            .top_p(0.5)
            .min_p(0.25)
            .repetition_penalty(1.5)
            .repeat_last_n(9)
            .seed(11);
        assert_eq!((sampling, max), (want, 33));
        assert!(set("mood", "1", &mut Sampling::default(), &mut max).is_err());
    }
}
