//! How long frames take: from the beginning of one to that of the next, with painting and the wait
//! for the display. Frames count only while the window draws without pause.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

/// Number of frames that are kept.
const KEPT: usize = 2048;
/// The longest frame that a person does not notice, in seconds: 30 frames a second.
pub const SMOOTH: f64 = 0.033;

/// Times of the last frames.
#[derive(Default)]
struct Times(VecDeque<f64>);

/// Figures of some frames, in seconds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Figures {
    /// Number of frames.
    pub count: usize,
    /// The median.
    pub median: f64,
    /// The time that 95 % of the frames are below.
    pub most: f64,
    /// The slowest frame.
    pub slowest: f64,
    /// Number of frames longer than [`SMOOTH`].
    pub rough: usize,
}

impl Times {
    fn push(&mut self, seconds: f64) {
        if self.0.len() == KEPT {
            self.0.pop_front();
        }
        self.0.push_back(seconds);
    }

    fn figures(&self) -> Option<Figures> {
        let mut all: Vec<f64> = self.0.iter().copied().collect();
        all.sort_by(f64::total_cmp);
        let last = all.len().checked_sub(1)?;
        Some(Figures {
            count: all.len(),
            median: all[last / 2],
            most: all[last * 95 / 100],
            slowest: all[last],
            rough: all.iter().filter(|seconds| **seconds > SMOOTH).count(),
        })
    }
}

impl std::fmt::Display for Figures {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Figures { count, median, most, slowest, rough } = *self;
        let [median, most, slowest] = [median, most, slowest].map(crate::format::seconds);
        let limit = SMOOTH * 1e3;
        write!(
            f,
            "{count} frames: median {median}, 95 % below {most}, slowest {slowest}, {rough} over \
             {limit:.0} ms"
        )
    }
}

/// Measures frames while it is switched on.
#[derive(Default)]
pub struct Frames {
    on: bool,
    /// When the last frame began, and whether a model answered then.
    last: Option<(Instant, bool)>,
    answering: Times,
    other: Times,
    /// When the program started.
    started: Option<Instant>,
    /// From then until the first frame was shown.
    first: Option<Duration>,
    begun: bool,
}

impl Frames {
    /// Creates the times of a program that started at `started`.
    pub fn since(started: Option<Instant>) -> Frames {
        Frames { started, ..Frames::default() }
    }

    /// Returns whether frames are measured; the window then draws without pause.
    pub fn is_on(&self) -> bool {
        self.on
    }

    /// Switches the measurement, which begins anew.
    pub fn switch(&mut self, on: bool) {
        let Frames { started, first, begun, .. } = *self;
        *self = Frames { on, started, first, begun, ..Frames::default() };
    }

    /// Begins a frame.
    pub fn begin(&mut self, now: Instant, answering: bool) {
        // The second frame begins when the first one is on the screen.
        if self.begun && self.first.is_none() {
            self.first = self.started.map(|started| now - started);
        }
        self.begun = true;
        if !self.on {
            return;
        }
        // The first frames of an answer wait for a prompt; both count.
        if let Some((last, was)) = self.last {
            let seconds = (now - last).as_secs_f64();
            match was {
                true => self.answering.push(seconds),
                false => self.other.push(seconds),
            }
        }
        self.last = Some((now, answering));
    }

    /// Returns the figures of the frames while a model answered.
    pub fn answering(&self) -> Option<Figures> {
        self.answering.figures()
    }

    /// Returns the figures of all other frames.
    pub fn other(&self) -> Option<Figures> {
        self.other.figures()
    }

    /// Returns a line for the first frame of the program, and for each kind of frame that was
    /// measured.
    pub fn lines(&self) -> Vec<String> {
        let kinds = [("while a model answers", self.answering()), ("otherwise", self.other())];
        let known = kinds.into_iter().filter_map(|(name, figures)| Some((name, figures?)));
        let lines = known.map(|(name, figures)| format!("{name}: {figures}"));
        let first = self.first.filter(|_| self.on).map(|first| {
            format!("first frame: {} after the start", crate::format::seconds(first.as_secs_f64()))
        });
        first.into_iter().chain(lines).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_count_by_what_the_model_did_when_they_began() {
        let mut frames = Frames::default();
        let begin = Instant::now();
        frames.begin(begin, true);
        assert_eq!((frames.answering(), frames.lines().len()), (None, 0));
        frames.switch(true);
        let mut now = begin;
        for millis in [0, 10, 10, 10, 50] {
            now += Duration::from_millis(millis);
            frames.begin(now, true);
        }
        frames.begin(now + Duration::from_millis(5), false);
        frames.begin(now + Duration::from_millis(12), false);
        let answering = frames.answering().unwrap();
        assert_eq!((answering.count, answering.rough), (5, 1));
        assert!((answering.median - 0.01).abs() < 1e-9 && (answering.slowest - 0.05).abs() < 1e-9);
        assert_eq!(frames.other().unwrap().count, 1);
        assert_eq!(
            frames.lines()[0],
            "while a model answers: 5 frames: median 10.0 ms, 95 % below 10.0 ms, slowest 50.0 ms, \
             1 over 33 ms"
        );
        frames.switch(false);
        assert_eq!(frames.answering(), None);

        let mut frames = Frames::since(Some(begin));
        frames.begin(begin + Duration::from_millis(300), false);
        frames.switch(true);
        frames.begin(begin + Duration::from_millis(340), false);
        frames.begin(begin + Duration::from_millis(390), false);
        assert_eq!(frames.lines()[0], "first frame: 340.0 ms after the start");
    }
}
