//! Scripts, which drive the window without a person: a step a line.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use crate::gallery::SceneName;
use crate::panel::PanelName;
use crate::settings::Theme;

/// How long a step may wait.
const PATIENCE: Duration = Duration::from_secs(180);

/// A step of a script.
#[derive(Clone, Debug, PartialEq)]
pub enum Step {
    /// `panel NAME`: show a panel.
    Panel(PanelName),
    /// `size WIDTHxHEIGHT`: resize the window, in points.
    Size(f32, f32),
    /// `theme light|dark|system`.
    Theme(Theme),
    /// `set NAME VALUE`: `temperature`, `max_tokens`, `seed`, `exact`, `port` or `system`.
    Set(String, String),
    /// `type TEXT`: replace the text of the message field.
    Type(String),
    /// `send`: send it.
    Send,
    /// `stop`: end the running answer.
    Stop,
    /// `new`: begin a conversation.
    New,
    /// `wait`: until nothing runs.
    Wait,
    /// `pause SECONDS`.
    Pause(f64),
    /// `tokens N`: wait until the running answer has this many.
    Tokens(usize),
    /// `models`: open the dialog of models.
    Models,
    /// `close`: close it.
    Close,
    /// `open PATH`: estimate a model, or show a picture.
    Open(PathBuf),
    /// `load`: load what was estimated.
    Load,
    /// `device ID|auto`: load the model on a device.
    Device(Option<String>),
    /// `take-away`: destroy the model's device.
    TakeAway,
    /// `measure`: time the kernels of a token.
    Measure,
    /// `scene NAME`: show a picture.
    Scene(SceneName),
    /// `cells WIDTHxHEIGHT`: the size of pictures.
    Cells(u32, u32),
    /// `steps N`: wait until the picture has this many, and pause it.
    Steps(u64),
    /// `pack NAME`: open a pack in the playground.
    Pack(String),
    /// `edit OLD => NEW`: replace a text in its shader.
    Edit(String, String),
    /// `checked`: wait until the pack is checked.
    Checked,
    /// `run DEVICE`: run the pack, and wait until it ran; fails if it does not run there.
    Run(String),
    /// `kernel N`: show the details of a kernel of the measurement.
    Kernel(usize),
    /// `compare DEVICE..`: generate the text of the message field on these devices.
    Compare(Vec<String>),
    /// `fetch NAME`: download a model of Hugging Face.
    Fetch(String),
    /// `frames on|off`: measure the time of frames. Both lines are printed at the end.
    Frames(bool),
    /// `server`: switch the server.
    Server,
    /// `shot FILE`: save a picture of the window.
    Shot(PathBuf),
    /// `expect TEXT`: fail unless the last answer or the message of the window has it.
    Expect(String),
}

impl Step {
    /// Reads a line; `None` if it is empty or a comment, which begins with `#`.
    ///
    /// # Errors
    /// If the line is no step.
    pub fn read(line: &str) -> Result<Option<Step>, String> {
        let line = line.trim();
        if line.is_empty() || line.starts_with('#') {
            return Ok(None);
        }
        let (name, rest) = line.split_once(char::is_whitespace).unwrap_or((line, ""));
        let rest = rest.trim();
        let step = Step::of(name, rest)?;
        let takes_nothing = matches!(
            step,
            Step::Send
                | Step::Stop
                | Step::New
                | Step::Wait
                | Step::Models
                | Step::Close
                | Step::Load
                | Step::TakeAway
                | Step::Measure
                | Step::Server
                | Step::Checked
        );
        match (takes_nothing, rest.is_empty()) {
            (true, false) => Err(format!("{name} takes nothing, and {rest:?} follows it")),
            (false, true) => Err(format!("{name} needs a value")),
            _ => Ok(Some(step)),
        }
    }

    fn of(name: &str, rest: &str) -> Result<Step, String> {
        let is_size = |points: f32| (64.0..=8192.0).contains(&points);
        let wrong = |what: &str| format!("{name} {rest:?}: {what}");
        Ok(match name {
            "panel" => {
                let names = PanelName::ALL.map(PanelName::id).join(", ");
                let panel = PanelName::ALL.into_iter().find(|panel| panel.id() == rest);
                Step::Panel(panel.ok_or_else(|| wrong(&format!("panels are {names}")))?)
            }
            "size" => {
                let sizes = rest.split_once('x').map(|(w, h)| (w.parse(), h.parse()));
                match sizes {
                    Some((Ok(width), Ok(height))) if is_size(width) && is_size(height) => {
                        Step::Size(width, height)
                    }
                    _ => return Err(wrong("sizes are like 1200x800, from 64 to 8192")),
                }
            }
            "theme" => Step::Theme(match rest {
                "light" => Theme::Light,
                "dark" => Theme::Dark,
                "system" => Theme::System,
                _ => return Err(wrong("themes are light, dark and system")),
            }),
            "set" => match rest.split_once(char::is_whitespace) {
                Some((name, value)) => Step::Set(name.to_owned(), value.trim().to_owned()),
                None => return Err(wrong("a name and a value are needed")),
            },
            "type" => Step::Type(rest.replace("\\n", "\n")),
            "send" => Step::Send,
            "stop" => Step::Stop,
            "new" => Step::New,
            "wait" => Step::Wait,
            "pause" => match rest.parse() {
                Ok(seconds) if (0.0..=PATIENCE.as_secs_f64()).contains(&seconds) => {
                    Step::Pause(seconds)
                }
                _ => return Err(wrong("seconds are needed")),
            },
            "tokens" => Step::Tokens(rest.parse().map_err(|_| wrong("a number is needed"))?),
            "models" => Step::Models,
            "close" => Step::Close,
            "open" => Step::Open(rest.into()),
            "load" => Step::Load,
            "device" => Step::Device((rest != "auto").then(|| rest.to_owned())),
            "take-away" => Step::TakeAway,
            "measure" => Step::Measure,
            "scene" => {
                let names = SceneName::ALL.map(SceneName::id).join(", ");
                let scene = SceneName::ALL.into_iter().find(|scene| scene.id() == rest);
                Step::Scene(scene.ok_or_else(|| wrong(&format!("pictures are {names}")))?)
            }
            "cells" => match rest.split_once('x').map(|(w, h)| (w.parse(), h.parse())) {
                Some((Ok(width @ 1..=8192), Ok(height @ 1..=8192))) => Step::Cells(width, height),
                // Points are in one row.
                Some((Ok(width @ 1..=4_194_304), Ok(1))) => Step::Cells(width, 1),
                _ => return Err(wrong("sizes are like 320x240, and of points like 4096x1")),
            },
            "steps" => Step::Steps(rest.parse().map_err(|_| wrong("a number is needed"))?),
            "pack" => Step::Pack(rest.to_owned()),
            "edit" => match rest.split_once("=>") {
                Some((old, new)) => Step::Edit(old.trim().to_owned(), new.trim().to_owned()),
                None => return Err(wrong("OLD => NEW is needed")),
            },
            "checked" => Step::Checked,
            "run" => Step::Run(rest.to_owned()),
            "kernel" => Step::Kernel(rest.parse().map_err(|_| wrong("a number is needed"))?),
            "compare" => Step::Compare(rest.split_whitespace().map(str::to_owned).collect()),
            "fetch" => Step::Fetch(rest.to_owned()),
            "frames" => Step::Frames(match rest {
                "on" => true,
                "off" => false,
                _ => return Err(wrong("on or off")),
            }),
            "server" => Step::Server,
            "shot" => Step::Shot(rest.into()),
            "expect" => Step::Expect(rest.to_owned()),
            _ => return Err(format!("there is no step {name:?}")),
        })
    }
}

/// A script and the place in it.
#[derive(Debug)]
pub struct Script {
    /// The steps with their lines.
    steps: Vec<(usize, Step)>,
    next: usize,
    since: Instant,
}

impl Script {
    /// Reads a script. `last` is a picture that is taken at its end.
    ///
    /// # Errors
    /// The first line that is no step, with its number.
    pub fn read(text: &str, last: Option<PathBuf>) -> Result<Script, String> {
        let mut steps = Vec::new();
        for (i, line) in text.lines().enumerate() {
            match Step::read(line) {
                Ok(step) => steps.extend(step.map(|step| (i + 1, step))),
                Err(error) => return Err(format!("line {}: {error}", i + 1)),
            }
        }
        if let Some(last) = last {
            if steps.is_empty() {
                steps.push((0, Step::Wait));
            }
            steps.push((text.lines().count() + 1, Step::Shot(last)));
        }
        Ok(Script { steps, next: 0, since: Instant::now() })
    }

    /// Returns the step at which the script is, with its line.
    pub fn step(&self) -> Option<(usize, Step)> {
        self.steps.get(self.next).cloned()
    }

    /// Returns how long it has been at this step.
    pub fn waited(&self) -> Duration {
        self.since.elapsed()
    }

    /// Returns whether this step has waited too long.
    pub fn is_late(&self) -> bool {
        self.waited() > PATIENCE
    }

    /// Goes on to the next step.
    pub fn advance(&mut self) {
        self.next += 1;
        self.since = Instant::now();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_script_is_read_and_its_picture_is_the_last_step() {
        let text = "# a comment\n\npanel devices\nsize 900x600\ntype Who\\nare you?\nsend\nwait\n";
        let mut script = Script::read(text, Some("a.png".into())).unwrap();
        let want = [
            (3, Step::Panel(PanelName::Devices)),
            (4, Step::Size(900.0, 600.0)),
            (5, Step::Type("Who\nare you?".into())),
            (6, Step::Send),
            (7, Step::Wait),
            (8, Step::Shot("a.png".into())),
        ];
        for step in want {
            assert_eq!(script.step(), Some(step));
            script.advance();
        }
        assert_eq!(script.step(), None);
    }

    #[test]
    fn a_line_that_is_no_step_is_named() {
        for (line, want) in [
            ("dance", "line 2: there is no step \"dance\""),
            ("panel cellar", "panels are chat, "),
            ("size 9", "sizes are like"),
            ("size infxinf", "sizes are like"),
            ("size 1e9x100", "sizes are like"),
            ("send it", "takes nothing"),
            ("type", "needs a value"),
            ("tokens many", "a number is needed"),
            ("set seed", "a name and a value"),
        ] {
            let error = Script::read(&format!("wait\n{line}"), None).unwrap_err();
            assert!(error.contains(want), "{line}: {error}");
        }
    }
}
