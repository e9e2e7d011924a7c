//! Builds programs from source text, and reports compiler errors.

use std::fmt::Write;

use super::cl::{Code, Context, DeviceId, Program};
use crate::native_source::own_text;

/// Maximum number of compiler log lines in an error.
const LOG_LINES: usize = 24;

/// Builds a program from its text. If it is a user's text, `twin` is the file name that line
/// numbers refer to.
///
/// # Errors
/// The compiler's message, with the source line it refers to.
pub(super) fn from_text(
    context: &Context,
    device: DeviceId,
    text: &str,
    options: &str,
    twin: Option<&str>,
) -> Result<Program, String> {
    let program = context.program(text).map_err(|code| code.to_string())?;
    match program.build(device, options) {
        Ok(()) => Ok(program),
        Err((code, log)) => Err(refusal(code, &log, text, twin)),
    }
}

/// Builds a program from an earlier [`Program::binary`]; `None` if the driver no longer accepts it.
pub(super) fn from_binary(
    context: &Context,
    device: DeviceId,
    binary: &[u8],
    options: &str,
) -> Option<Program> {
    let program = context.program_from(device, binary).ok()?;
    program.build(device, options).ok()?;
    Some(program)
}

/// Formats the compiler's message, with the source line of its first error.
fn refusal(code: Code, log: &str, text: &str, twin: Option<&str>) -> String {
    let whole = text;
    let (file, text) = match twin {
        Some(file) => (file, own_text(text, file)),
        None => ("the translation", text),
    };
    let before = whole[..whole.len() - text.len()].lines().count();
    let log = &in_own_lines(log, file, before);
    let mut said = format!("the OpenCL compiler refuses it: {code}");
    // A location that is still of the whole program is not in the user's text.
    if let Some(number) = first_error(log, before > 0)
        && let Some(line) = number.checked_sub(1).and_then(|n| text.lines().nth(n))
    {
        let _ = write!(said, "\nline {number} of {file}: {}", line.trim());
    }
    let lines: Vec<&str> = log.lines().filter(|line| !line.trim().is_empty()).collect();
    for line in lines.iter().take(LOG_LINES) {
        let _ = write!(said, "\n{line}");
    }
    if lines.len() > LOG_LINES {
        let _ = write!(said, "\n({} more lines)", lines.len() - LOG_LINES);
    }
    said
}

/// The name that a program has in the logs of compilers that ignore `#line`.
const WHOLE: &str = "<kernel>:";

/// Rewrites the locations of a compiler that ignores `#line`, as NVIDIA's does: it counts from the
/// start of the program, which has `before` lines before the user's text.
fn in_own_lines(log: &str, file: &str, before: usize) -> String {
    if before == 0 {
        return log.to_string();
    }
    let relocate = |line: &str| {
        let (start, rest) = line.split_once(WHOLE)?;
        let end = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
        let number = rest[..end].parse::<usize>().ok()?.checked_sub(before).filter(|n| *n > 0)?;
        Some(format!("{start}{file}:{number}{}", &rest[end..]))
    };
    let lines: Vec<String> =
        log.lines().map(|line| relocate(line).unwrap_or_else(|| line.to_string())).collect();
    lines.join("\n")
}

/// Returns the line number in a log's first error, as in `<kernel>:12:5: error: ...` or `error:
/// /tmp/x.cl:12:5: ...`.
///
/// Returns `None` if `own` and the location is of the whole program.
fn first_error(log: &str, own: bool) -> Option<usize> {
    let line = log.lines().find(|line| line.contains("error"))?;
    if own && line.contains(WHOLE) {
        return None;
    }
    let parts: Vec<Option<usize>> = line.split(':').map(|part| part.trim().parse().ok()).collect();
    // A line and a column, or only a line if there is no column.
    let both = parts.windows(2).find_map(|pair| pair[0].filter(|_| pair[1].is_some()));
    both.or_else(|| parts.iter().copied().flatten().next())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_compiler_that_ignores_line_directives_is_understood() {
        let text = "#define A 1\n#define B 2\n#line 1 \"own.cl\"\na\n  int x = wrong;\nb\n";
        for log in ["<kernel>:5:11: error: no 'wrong'", "own.cl:2:11: error: no 'wrong'"] {
            let said = refusal(Code(-11), log, text, Some("own.cl"));
            assert!(said.contains("line 2 of own.cl: int x = wrong;"), "{said}");
            assert!(said.ends_with("own.cl:2:11: error: no 'wrong'"), "{said}");
        }
        // Lines before the user's text keep their numbers.
        let said = refusal(Code(-11), "<kernel>:2:1: error: no", text, Some("own.cl"));
        assert!(said.ends_with("<kernel>:2:1: error: no") && !said.contains("line 2"), "{said}");
    }

    #[test]
    fn a_refusal_quotes_the_line_that_is_meant() {
        let text = "a\nb\n  int x = wrong;\nd\n";
        for log in [
            "<kernel>:3:11: error: use of undeclared identifier 'wrong'",
            "warning: odd\npocl:1/x.cl:3:11: error: use of undeclared identifier",
            "error: cache/tempfile_8tI5S8.cl:3:12: use of undeclared identifier 'wrong'",
            "x.cl:3: error: no",
        ] {
            let said = refusal(Code(-11), log, text, None);
            assert!(said.contains("CL_BUILD_PROGRAM_FAILURE (-11)"), "{said}");
            assert!(said.contains("line 3 of the translation: int x = wrong;"), "{said}");
            assert!(said.ends_with(log.lines().last().unwrap()), "{said}");
        }
        assert!(!refusal(Code(-11), "it failed", text, None).contains("line"));
        assert!(!refusal(Code(-11), "x.cl:99:1: error: no", text, None).contains("translation"));
        let long = "error\n".repeat(LOG_LINES + 3);
        assert!(refusal(Code(-11), &long, text, None).ends_with("(3 more lines)"));
    }
}
