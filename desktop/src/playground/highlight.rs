//! Colours of WGSL, and the line of an error.

use eframe::egui::{Color32, FontId, Ui, text::LayoutJob, text::TextFormat};

use crate::look::{self, SERIES};

const KEYWORDS: [&str; 24] = [
    "alias",
    "break",
    "case",
    "const",
    "const_assert",
    "continue",
    "continuing",
    "default",
    "else",
    "enable",
    "false",
    "fn",
    "for",
    "if",
    "let",
    "loop",
    "override",
    "return",
    "struct",
    "switch",
    "true",
    "var",
    "while",
    "requires",
];

const TYPES: [&str; 19] = [
    "array",
    "atomic",
    "bool",
    "f32",
    "i32",
    "u32",
    "vec2",
    "vec3",
    "vec4",
    "mat2x2",
    "mat3x3",
    "mat4x4",
    "ptr",
    "storage",
    "uniform",
    "workgroup",
    "private",
    "read",
    "read_write",
];

/// What a piece of text is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Piece {
    Plain,
    Comment,
    Keyword,
    Type,
    Number,
    Attribute,
}

/// Splits a line into pieces of one kind.
fn pieces(line: &str) -> Vec<(Piece, &str)> {
    let mut all = Vec::new();
    let mut rest = line;
    let is_word = |c: char| c.is_alphanumeric() || c == '_';
    while let Some(first) = rest.chars().next() {
        let (piece, length) = if rest.starts_with("//") || rest.starts_with('#') {
            (Piece::Comment, rest.len())
        } else if first.is_ascii_digit() {
            let end = rest.find(|c: char| !is_word(c) && c != '.').unwrap_or(rest.len());
            (Piece::Number, end)
        } else if first == '@' {
            let end = rest[1..].find(|c: char| !is_word(c)).map_or(rest.len(), |end| end + 1);
            (Piece::Attribute, end)
        } else if is_word(first) {
            let end = rest.find(|c: char| !is_word(c)).unwrap_or(rest.len());
            let piece = match &rest[..end] {
                word if KEYWORDS.contains(&word) => Piece::Keyword,
                word if TYPES.contains(&word) => Piece::Type,
                _ => Piece::Plain,
            };
            (piece, end)
        } else {
            let stop = |c: char| is_word(c) || c == '@' || c == '/' || c == '#';
            let end = rest[first.len_utf8()..].find(stop);
            (Piece::Plain, end.map_or(rest.len(), |end| end + first.len_utf8()))
        };
        all.push((piece, &rest[..length]));
        rest = &rest[length..];
    }
    all
}

/// Lays out a text in colours, with a background at a line, counted from 1.
pub(super) fn layout(ui: &Ui, text: &str, wrong: Option<usize>) -> LayoutJob {
    let palette = look::palette(ui);
    let font = FontId::monospace(13.0);
    let mut job = LayoutJob::default();
    job.wrap.max_width = f32::INFINITY;
    for (i, line) in text.split_inclusive('\n').enumerate() {
        let background = match wrong == Some(i + 1) {
            true => palette.bad_ground,
            false => Color32::TRANSPARENT,
        };
        for (piece, text) in pieces(line) {
            let color = match piece {
                Piece::Plain => palette.text,
                Piece::Comment => palette.faint,
                Piece::Keyword => palette.accent,
                Piece::Type => SERIES[1],
                Piece::Number => SERIES[2],
                Piece::Attribute => SERIES[3],
            };
            let format = TextFormat { background, ..TextFormat::simple(font.clone(), color) };
            job.append(text, 0.0, format);
        }
    }
    job
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_are_the_whole_line() {
        let line = "let größe = array<f32, 4>(1.5e3); // why";
        let found = pieces(line);
        assert_eq!(found.iter().map(|piece| piece.1).collect::<String>(), line);
        for want in [
            (Piece::Keyword, "let"),
            (Piece::Type, "array"),
            (Piece::Number, "1.5e3"),
            (Piece::Comment, "// why"),
        ] {
            assert!(found.contains(&want), "{want:?} {found:?}");
        }
        assert_eq!(pieces("@group(0)")[0], (Piece::Attribute, "@group"));
    }
}
