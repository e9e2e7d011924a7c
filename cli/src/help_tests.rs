//! Checks the help texts: examples parse, and named engines exist.

use crate::args::Cli;
use clap::CommandFactory;
use warploom::engine::Registry;

/// Returns the name and the help of every command and subcommand.
fn helps() -> Vec<(String, String)> {
    fn add(command: &mut clap::Command, all: &mut Vec<(String, String)>) {
        all.push((command.get_name().to_owned(), command.render_long_help().to_string()));
        command.get_subcommands_mut().for_each(|command| add(command, all));
    }
    let (mut root, mut all) = (Cli::command().term_width(0), Vec::new());
    // Propagates the width to subcommands.
    root.build();
    add(&mut root, &mut all);
    all
}

/// Returns the commands of a line as lists of words, split as in a shell: at spaces outside quotes
/// and at pipes, without comments and redirections.
#[cfg(feature = "embedded-model")]
fn commands(line: &str) -> Vec<Vec<String>> {
    let mut all = vec![Vec::new()];
    let (mut word, mut quote) = (None::<String>, None);
    for letter in line.chars().chain([' ']) {
        match (quote, letter) {
            (Some(open), _) if open == letter => quote = None,
            (None, '"' | '\'') => {
                quote = Some(letter);
                word.get_or_insert_default();
            }
            (None, '#') if word.is_none() => break,
            (None, ' ') => {
                let Some(word) = word.take() else { continue };
                match word.as_str() {
                    "|" | "&&" => all.push(Vec::new()),
                    _ => all.last_mut().unwrap().push(word),
                }
            }
            _ => word.get_or_insert_default().push(letter),
        }
    }
    for command in &mut all {
        let end = command.iter().position(|word| [">", "<"].contains(&word.as_str()));
        command.truncate(end.unwrap_or(command.len()));
    }
    all
}

// Without an embedded model, the command requires a model argument.
#[cfg(feature = "embedded-model")]
#[test]
fn every_example_parses() {
    let mut parsed = 0;
    for (name, help) in helps() {
        let lines =
            help.lines().filter(|line| line.starts_with("  ") && line.contains("warploom "));
        for command in
            lines.flat_map(commands).filter(|c| c.first().is_some_and(|w| w == "warploom"))
        {
            if let Err(error) = Cli::read(&command) {
                panic!("{name}: {command:?}: {error}");
            }
            parsed += 1;
        }
    }
    assert!(parsed >= 60, "{parsed}");
}

#[test]
fn every_engine_in_a_help_exists() {
    let registry = Registry::builtin();
    let ids: Vec<&str> = registry.engines().iter().map(|engine| engine.id().as_str()).collect();
    let family = |id: &str| id.split_once('.').map(|(family, _)| family.to_owned());
    let families: Vec<String> = ids.iter().filter_map(|id| family(id)).collect();
    let mut named = 0;
    for (name, help) in helps() {
        let other = |c: char| !(c.is_ascii_alphanumeric() || "_.".contains(c));
        let words = help.split(other).map(|word| word.trim_end_matches('.'));
        for id in words.filter(|word| family(word).is_some_and(|f| families.contains(&f))) {
            assert!(ids.contains(&id), "{name}: {id}");
            named += 1;
        }
    }
    assert!(named >= 4, "{named}");
}
