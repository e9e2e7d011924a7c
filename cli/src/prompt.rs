//! Reads the prompt of `generate`: an argument, or standard input.

use crate::progress::tell;
use anyhow::{Context, bail};
use std::io::{IsTerminal, Read};
use std::sync::mpsc::{Receiver, RecvTimeoutError, sync_channel};
use std::time::Duration;

/// Maximum length of a prompt in bytes, more than any context holds.
const MOST: usize = 64 << 20;
/// Timeout for standard input that is not a terminal, if no prompt is given: it may be an inherited
/// pipe without a writer.
const WAIT: Duration = Duration::from_secs(10);
/// Time without input after which a note is printed.
const SILENT: Duration = Duration::from_secs(1);

/// A chunk of standard input; empty at its end.
type Part = std::io::Result<Vec<u8>>;

/// Returns the prompt: `given`, or for `-` all of standard input. If none is given, standard input
/// is read too, but the prompt is empty if that is a terminal or sends nothing for [`WAIT`].
///
/// # Errors
/// Read errors, invalid UTF-8, and a prompt of more than [`MOST`] bytes.
pub(crate) fn read(given: Option<&str>, quiet: bool) -> anyhow::Result<String> {
    let is_terminal = std::io::stdin().is_terminal();
    match given {
        Some("-") => {
            if is_terminal && !quiet {
                tell("reading the prompt from standard input");
            }
            Ok(whole(&parts(std::io::stdin()), None)?.unwrap_or_default())
        }
        Some(text) => Ok(text.to_owned()),
        None if is_terminal => Ok(String::new()),
        None => piped(&parts(std::io::stdin()), quiet, WAIT),
    }
}

/// Returns the prompt from a pipe; empty, with a message, if nothing arrives within `wait`.
fn piped(parts: &Receiver<Part>, quiet: bool, wait: Duration) -> anyhow::Result<String> {
    match whole(parts, Some(wait))? {
        Some(text) => {
            if !quiet && !text.is_empty() {
                tell(&format!("the prompt is standard input, {} bytes", text.len()));
            }
            Ok(text)
        }
        None => {
            // Printed even if quiet, so that a missing prompt is noticed.
            tell(&format!(
                "standard input is open but sent nothing for {} seconds, so there is no prompt; \
                 `generate -` waits for one",
                wait.as_secs_f32()
            ));
            Ok(String::new())
        }
    }
}

/// Reads in chunks on a separate thread, because a blocking read of a pipe cannot be interrupted;
/// returns the channel of chunks. The last item is an empty chunk or an error.
fn parts(mut from: impl Read + Send + 'static) -> Receiver<Part> {
    let (send, receive) = sync_channel(4);
    std::thread::spawn(move || {
        let mut buffer = vec![0; 64 << 10];
        loop {
            let part = match from.read(&mut buffer) {
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => continue,
                read => read.map(|count| buffer[..count].to_vec()),
            };
            let ends = part.as_ref().map_or(true, Vec::is_empty);
            if send.send(part).is_err() || ends {
                return;
            }
        }
    });
    receive
}

/// Returns all chunks as text, without a final line break such as `echo` adds, or `None` if the
/// first chunk does not arrive within `wait`.
fn whole(parts: &Receiver<Part>, wait: Option<Duration>) -> anyhow::Result<Option<String>> {
    let mut bytes = Vec::new();
    let mut first = wait;
    loop {
        let part = match first.take() {
            None => parts.recv().ok(),
            Some(wait) => match within(parts, wait) {
                Ok(part) => Some(part),
                Err(RecvTimeoutError::Timeout) => return Ok(None),
                Err(RecvTimeoutError::Disconnected) => None,
            },
        };
        let part = part.transpose().context("reading the prompt from standard input")?;
        match part.filter(|part| !part.is_empty()) {
            None => break,
            Some(part) if bytes.len() + part.len() > MOST => {
                bail!("the prompt on standard input has more than {MOST} bytes")
            }
            Some(part) => bytes.extend(part),
        }
    }
    let text = String::from_utf8(bytes).map_err(|error| {
        let at = error.utf8_error().valid_up_to();
        anyhow::anyhow!("the prompt on standard input is not UTF-8 at byte {at}")
    })?;
    let line = text.strip_suffix('\n').unwrap_or(&text);
    Ok(Some(line.strip_suffix('\r').unwrap_or(line).to_owned()))
}

/// Receives the first chunk; prints a note if it does not arrive within [`SILENT`].
fn within(parts: &Receiver<Part>, wait: Duration) -> Result<Part, RecvTimeoutError> {
    let silent = SILENT.min(wait);
    match parts.recv_timeout(silent) {
        Err(RecvTimeoutError::Timeout) if wait > silent => {
            tell(&format!(
                "waiting for a prompt on standard input, {} seconds at most",
                wait.as_secs_f32()
            ));
            parts.recv_timeout(wait - silent)
        }
        received => received,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Instant;

    fn all(input: &'static [u8]) -> anyhow::Result<Option<String>> {
        whole(&parts(input), Some(Duration::from_secs(5)))
    }

    #[test]
    fn a_prompt_from_a_pipe_loses_one_line_end() {
        for (input, want) in [("a\n", "a"), ("a\r\n", "a"), ("a\n\n", "a\n"), ("a", "a"), ("", "")]
        {
            assert_eq!(all(input.as_bytes()).unwrap().as_deref(), Some(want));
        }
        let error = all(b"ab\xff").unwrap_err();
        assert!(
            format!("{error:#}").contains("standard input is not UTF-8 at byte 2"),
            "{error:#}"
        );
    }

    #[test]
    fn an_endless_prompt_is_refused() {
        let error = whole(&parts(std::io::repeat(b'x')), None).unwrap_err();
        assert!(error.to_string().contains("more than 67108864 bytes"), "{error}");
    }

    /// A pipe that sends its text (`self.1`) after a delay (`self.0`), and ends after another
    /// delay.
    struct Slow(Duration, &'static [u8]);

    impl Read for Slow {
        fn read(&mut self, into: &mut [u8]) -> std::io::Result<usize> {
            std::thread::sleep(self.0);
            let count = self.1.read(into)?;
            Ok(count)
        }
    }

    #[test]
    fn a_pipe_that_says_nothing_is_waited_for_so_long_only() {
        let begin = Instant::now();
        let silent = parts(Slow(Duration::from_secs(600), b""));
        assert_eq!(piped(&silent, true, Duration::from_millis(100)).unwrap(), "");
        assert!(begin.elapsed() < Duration::from_secs(60), "{:?}", begin.elapsed());
        // A pipe that sends late is read completely.
        let slow = parts(Slow(Duration::from_millis(200), b"Long ago"));
        assert_eq!(piped(&slow, true, Duration::from_secs(60)).unwrap(), "Long ago");
        struct Broken;
        impl Read for Broken {
            fn read(&mut self, _: &mut [u8]) -> std::io::Result<usize> {
                Err(std::io::Error::other("it broke"))
            }
        }
        let error = piped(&parts(Broken), true, WAIT).unwrap_err();
        assert!(format!("{error:#}").contains("standard input: it broke"), "{error:#}");
    }
}
