//! Texts on the command line that begin with a dash: `generate "- a list"`.
//!
//! If clap accepted any unknown option as text, an option with a typo would become a prompt. So an
//! argument counts as text only if it cannot be an option: its name would contain a space, or does
//! not begin with a letter. Such an argument is marked before clap parses it, and [`text`] removes
//! the mark.

use clap::error::{ContextKind, ContextValue};
use std::ffi::OsString;

/// A character that no command-line argument contains.
const MARK: char = '\0';

/// Id of the positional argument that takes text.
const PROMPT: &str = "prompt";
/// Id of the option that takes text.
const SYSTEM: &str = "system";

/// Parses a text argument: removes its mark.
pub(crate) fn text(value: &str) -> Result<String, String> {
    Ok(value.strip_prefix(MARK).unwrap_or(value).to_owned())
}

/// The kind of an argument that begins with a dash.
enum Dashed<'a> {
    /// A known option; holds its definition if the next argument is its value.
    Option(Option<&'a clap::Arg>),
    /// Text, since it cannot be an option.
    Text,
    /// Looks like an option but is unknown; clap reports the error.
    Unknown,
}

/// Puts marks before the arguments that are texts. The first of `args` is the program's name.
pub(crate) fn marked(command: &clap::Command, args: Vec<OsString>) -> Vec<OsString> {
    let name = args.get(1).and_then(|name| name.to_str());
    let Some(command) = name.and_then(|name| command.find_subcommand(name)) else { return args };
    let takes_prompt = command.get_positionals().any(|arg| arg.get_id() == PROMPT);
    let mut awaiting: Option<&clap::Arg> = None;
    let mut ended = false;
    let mark = |arg: OsString| {
        let mut marked = OsString::from(MARK.to_string());
        marked.push(arg);
        marked
    };
    let mut out = Vec::with_capacity(args.len());
    for (index, arg) in args.into_iter().enumerate() {
        let dashed = arg.to_str().filter(|arg| arg.starts_with('-') && *arg != "-");
        let Some(word) = dashed.filter(|_| index > 1 && !ended) else {
            awaiting = None;
            out.push(arg);
            continue;
        };
        ended = word == "--";
        let kind = if ended { Dashed::Unknown } else { kind(command, word) };
        let is_text = match awaiting.take() {
            Some(option) => option.get_id() == SYSTEM && matches!(kind, Dashed::Text),
            None => {
                if let Dashed::Option(next) = kind {
                    awaiting = next;
                }
                takes_prompt && matches!(kind, Dashed::Text)
            }
        };
        out.push(if is_text { mark(arg) } else { arg });
    }
    out
}

/// Adds to a usage error how to pass the text that was read as short options, such as `-list`.
pub(crate) fn with_tip(
    command: &clap::Command,
    args: &[OsString],
    mut error: clap::Error,
) -> clap::Error {
    let name = args.get(1).and_then(|name| name.to_str());
    let takes_text = name
        .and_then(|name| command.find_subcommand(name))
        .is_some_and(|command| command.get_positionals().next().is_some());
    let context = |kind| match error.get(kind) {
        Some(ContextValue::String(text)) => text.as_str(),
        _ => "",
    };
    let (option, value) = (context(ContextKind::InvalidArg), context(ContextKind::InvalidValue));
    let is_cause = |arg: &&str| match arg.strip_prefix('-') {
        // `-n is odd` is read as `-n` with the value ` is odd`, `--seed of doubt` as a long option.
        Some(rest) if rest.contains(char::is_whitespace) => {
            value.is_empty() || value.contains(char::is_whitespace)
        }
        // `-l` of `-list`.
        Some(rest) if !rest.starts_with('-') => {
            let letters = rest.chars().count();
            value.is_empty() && letters > 1 && option.len() == 2 && arg.contains(&option[1..])
        }
        _ => false,
    };
    let cause = args.iter().skip(2).filter_map(|arg| arg.to_str()).find(is_cause);
    if let Some(text) = cause.filter(|_| takes_text) {
        let quoted = match text.contains('\'') {
            true => format!("{text:?}"),
            false => format!("'{text}'"),
        };
        let tip = format!("to pass a text that begins with a dash, use `-- {quoted}`");
        error.insert(ContextKind::Suggested, ContextValue::StyledStrs(vec![tip.into()]));
    }
    error
}

fn kind<'a>(command: &'a clap::Command, word: &str) -> Dashed<'a> {
    match word.strip_prefix("--") {
        Some(rest) => long(command, rest),
        None => short(command, &word[1..]),
    }
}

fn takes_value(arg: &clap::Arg) -> bool {
    arg.get_action().takes_values()
}

fn long<'a>(command: &'a clap::Command, rest: &str) -> Dashed<'a> {
    let name = rest.split_once('=').map_or(rest, |(name, _)| name);
    let first = name.split(char::is_whitespace).next().unwrap_or_default();
    if ["help", "version"].contains(&first) {
        return Dashed::Option(None);
    }
    if let Some(arg) = command.get_arguments().find(|arg| arg.get_long() == Some(first)) {
        return Dashed::Option(Some(arg).filter(|arg| takes_value(arg) && rest == first));
    }
    let is_name = first == name && name.starts_with(|c: char| c.is_ascii_alphabetic());
    if is_name { Dashed::Unknown } else { Dashed::Text }
}

/// Returns the kind of an argument with one dash: short options, of which the last may take a
/// value.
fn short<'a>(command: &'a clap::Command, letters: &str) -> Dashed<'a> {
    let first = letters.split(char::is_whitespace).next().unwrap_or_default();
    for (at, letter) in first.char_indices() {
        let found = command.get_arguments().find(|arg| arg.get_short() == Some(letter));
        match found {
            Some(arg) if takes_value(arg) => {
                let is_last = at + letter.len_utf8() == letters.len();
                return Dashed::Option(Some(arg).filter(|_| is_last));
            }
            Some(_) => {}
            None if letter == 'h' => {}
            None => {
                let is_name =
                    first == letters && first.starts_with(|c: char| c.is_ascii_alphabetic());
                return if is_name { Dashed::Unknown } else { Dashed::Text };
            }
        }
    }
    if first.is_empty() { Dashed::Text } else { Dashed::Option(None) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args::{Cli, Command, GenerateArgs};
    use clap::error::ErrorKind;

    fn generate(args: &[&str]) -> Result<GenerateArgs, clap::Error> {
        let all = ["warploom", "generate", "-m", "m.gguf"].iter().chain(args);
        match Cli::read(all)?.command {
            Command::Generate(args) => Ok(args),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn texts_that_begin_with_a_dash_are_prompts() {
        for prompt in [
            "- a list",
            "- ",
            "-5",
            "-5 degrees outside",
            "-- she said",
            "--- a/file.rs\n+++ b/file.rs",
            "---",
            "->",
            "-\n",
            "-hello world",
            "--not an option",
            "--=x",
            "\u{2014} a long one",
            "-\u{e9}t\u{e9}",
            "-",
        ] {
            for args in [
                &[prompt][..],
                &[prompt, "-q"],
                &["-q", prompt, "--json"],
                &["-d", "cpu", prompt],
                &["--seed", "1", prompt, "-n", "5"],
                &["--seed=1", prompt],
                &["-t", "0", prompt],
                &["-t0", prompt],
            ] {
                let got = generate(args).unwrap_or_else(|e| panic!("{args:?}: {e}"));
                assert_eq!(got.prompt.as_deref(), Some(prompt), "{args:?}");
            }
        }
        let after = generate(&["-q", "--", "--seed"]).unwrap();
        assert_eq!(after.prompt.as_deref(), Some("--seed"));
        assert_eq!(generate(&["--", "- x"]).unwrap().prompt.as_deref(), Some("- x"));
    }

    #[test]
    fn options_stay_options() {
        let got = generate(&["--seed", "1"]).unwrap();
        assert_eq!((got.prompt, got.choice.seed()), (None, 1));
        let got = generate(&["-mmy models/a.gguf", "-qn", "7"]);
        // Parsed as options; `-m` is given twice.
        assert_eq!(got.unwrap_err().kind(), ErrorKind::ArgumentConflict);
        let got = generate(&["-qn", "7", "-t", "0.5", "x"]).unwrap();
        assert_eq!((got.max_tokens, got.quiet, got.prompt.as_deref()), (7, true, Some("x")));
        for args in [
            &["--sed", "1"][..],
            &["--quiett"],
            &["-z"],
            &["-zq"],
            &["--seed"],
            &["--seed 1"],
            &["-n", "- a list"],
            &["-d", "- a list"],
            &["-n", "--json"],
            &["--json=1"],
            &["- a", "- b"],
        ] {
            let error = generate(args).unwrap_err();
            assert_eq!(error.exit_code(), 2, "{args:?}: {error}");
            assert!(!error.to_string().contains(MARK), "{args:?}: {error}");
        }
        assert_eq!(generate(&["--help"]).unwrap_err().kind(), ErrorKind::DisplayHelp);
        assert_eq!(generate(&["-h"]).unwrap_err().kind(), ErrorKind::DisplayHelp);
    }

    #[test]
    fn a_usage_error_says_how_to_pass_the_text() {
        for (text, quoted) in [
            ("-list", "-- '-list'"),
            ("-n is odd", "-- '-n is odd'"),
            ("-quit", "-- '-quit'"),
            ("--seed of doubt", "-- '--seed of doubt'"),
            ("-it's", "-- \"-it's\""),
        ] {
            let error = generate(&[text]).unwrap_err().to_string();
            assert!(error.contains(quoted), "{text}: {error}");
        }
        let twice = generate(&["-n", "2", "-n is odd"]).unwrap_err().to_string();
        assert!(twice.contains("-- '-n is odd'"), "{twice}");
        for args in [&["-n", "x y"][..], &["--sed", "1"], &["-z"]] {
            let error = generate(args).unwrap_err().to_string();
            assert!(!error.contains("begins with a dash"), "{args:?}: {error}");
        }
    }

    #[test]
    fn a_system_message_may_begin_with_a_dash() {
        let chat = |args: &[&str]| {
            let all = ["warploom", "chat", "-m", "m.gguf"].iter().chain(args);
            match Cli::read(all).map(|cli| cli.command) {
                Ok(Command::Chat(args)) => args.system,
                other => panic!("{other:?}"),
            }
        };
        assert_eq!(chat(&["--system", "- Be brief."]).as_deref(), Some("- Be brief."));
        assert_eq!(chat(&["--system=- Be brief.", "-q"]).as_deref(), Some("- Be brief."));
        let error = Cli::read(["warploom", "chat", "-m", "m.gguf", "--system", "--json"]);
        assert_eq!(error.unwrap_err().exit_code(), 2);
        // Other commands take no text.
        assert!(Cli::read(["warploom", "devices", "- a list"]).is_err());
    }
}
