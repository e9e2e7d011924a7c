//! Size expressions of manifests: `2*n + 1`, `ceil(n / 256)`, `min(rows, cols)`.

use warploom_core::base::Dim;
use warploom_core::error::{Error, Result};
use warploom_core::ir::bounded_dims;

/// Maximum length of an expression in bytes. Bounds the time for multiplying out sums.
const MAX_TEXT: usize = 100;
/// Maximum nesting of brackets.
const MAX_DEPTH: u32 = 16;

/// An integer expression over names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Expr {
    Number(i64),
    Name(String),
    Binary(Operator, Box<Expr>, Box<Expr>),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Operator {
    Add,
    Sub,
    Mul,
    /// Division rounded towards minus infinity.
    Div,
    /// Division rounded towards infinity.
    CeilDiv,
    Rem,
    Min,
    Max,
}

impl Expr {
    /// Parses an expression.
    ///
    /// # Errors
    /// Invalid if the text is not an expression; the message has the text and the position in it.
    pub(super) fn parse(text: &str) -> Result<Expr> {
        if text.len() > MAX_TEXT {
            let have = text.len();
            return Err(Error::invalid(format!("a size of {have} characters, at most {MAX_TEXT}")));
        }
        let mut parser = Parser { text, at: 0, depth: 0 };
        let expr = parser.sum()?;
        match parser.peek() {
            None => Ok(expr),
            Some(_) => Err(parser.fail("an operator")),
        }
    }

    /// Appends every name in the expression to `found`.
    pub(super) fn names<'a>(&'a self, found: &mut Vec<&'a str>) {
        match self {
            Expr::Number(_) => {}
            Expr::Name(name) => found.push(name),
            Expr::Binary(_, a, b) => {
                a.names(found);
                b.names(found);
            }
        }
    }

    /// Evaluates the expression; `name` returns the size of a name.
    ///
    /// # Errors
    /// Any error that `name` returns; invalid for a division by zero, or for a size that is too
    /// long when multiplied out.
    pub(super) fn eval(&self, name: &dyn Fn(&str) -> Result<Dim>) -> Result<Dim> {
        let dim = match self {
            Expr::Number(value) => Dim::new(*value),
            Expr::Name(text) => name(text)?,
            Expr::Binary(operator, a, b) => {
                let (a, b) = (a.eval(name)?, b.eval(name)?);
                let divides = matches!(operator, Operator::Div | Operator::CeilDiv | Operator::Rem);
                if divides && b.is(0) {
                    return Err(Error::invalid(format!("{a} is divided by zero")));
                }
                match operator {
                    Operator::Add => a + b,
                    Operator::Sub => a - b,
                    Operator::Mul => a * b,
                    Operator::Div => a.floor_div(&b),
                    Operator::CeilDiv => a.ceil_div(&b),
                    Operator::Rem => a.modulo(&b),
                    Operator::Min => a.minimum(&b),
                    Operator::Max => a.maximum(&b),
                }
            }
        };
        bounded_dims(std::slice::from_ref(&dim))?;
        Ok(dim)
    }
}

struct Parser<'a> {
    text: &'a str,
    at: usize,
    depth: u32,
}

impl<'a> Parser<'a> {
    fn peek(&mut self) -> Option<char> {
        let rest = &self.text[self.at..];
        self.at += rest.len() - rest.trim_start().len();
        self.text[self.at..].chars().next()
    }

    fn take(&mut self, wanted: char) -> bool {
        let found = self.peek() == Some(wanted);
        if found {
            self.at += wanted.len_utf8();
        }
        found
    }

    fn word(&mut self, accept: fn(char) -> bool) -> &'a str {
        self.peek();
        let rest = &self.text[self.at..];
        let end = rest.find(|c| !accept(c)).unwrap_or(rest.len());
        self.at += end;
        &rest[..end]
    }

    fn fail(&self, wanted: &str) -> Error {
        let (at, text) = (self.at + 1, self.text);
        Error::invalid(format!("size {text:?}: {wanted} is missing at character {at}"))
    }

    fn sum(&mut self) -> Result<Expr> {
        let mut left = self.product()?;
        loop {
            let operator = match self.peek() {
                Some('+') => Operator::Add,
                Some('-') => Operator::Sub,
                _ => return Ok(left),
            };
            self.at += 1;
            left = Expr::Binary(operator, Box::new(left), Box::new(self.product()?));
        }
    }

    fn product(&mut self) -> Result<Expr> {
        let mut left = self.atom()?;
        loop {
            let operator = match self.peek() {
                Some('*') => Operator::Mul,
                Some('/') => Operator::Div,
                Some('%') => Operator::Rem,
                _ => return Ok(left),
            };
            self.at += 1;
            left = Expr::Binary(operator, Box::new(left), Box::new(self.atom()?));
        }
    }

    fn atom(&mut self) -> Result<Expr> {
        match self.peek() {
            Some('(') => {
                self.at += 1;
                self.nested(')')
            }
            Some(c) if c.is_ascii_digit() => {
                let digits = self.word(|c| c.is_ascii_digit());
                digits.parse().map(Expr::Number).map_err(|_| self.fail("a number of 63 bits"))
            }
            Some(c) if c.is_ascii_alphabetic() || c == '_' => {
                let name = self.word(|c| c.is_ascii_alphanumeric() || c == '_');
                match self.take('(') {
                    true => self.function(name),
                    false => Ok(Expr::Name(name.into())),
                }
            }
            _ => Err(self.fail("a number or a name")),
        }
    }

    fn nested(&mut self, end: char) -> Result<Expr> {
        self.depth += 1;
        if self.depth > MAX_DEPTH {
            return Err(Error::invalid(format!("size {:?} is nested too deep", self.text)));
        }
        let inner = self.sum()?;
        self.depth -= 1;
        match self.take(end) {
            true => Ok(inner),
            false => Err(self.fail(&format!("{end:?}"))),
        }
    }

    fn function(&mut self, name: &str) -> Result<Expr> {
        let operator = match name {
            "ceil" => {
                return match self.nested(')')? {
                    Expr::Binary(Operator::Div, a, b) => Ok(Expr::Binary(Operator::CeilDiv, a, b)),
                    _ => Err(self.fail("a division inside ceil(..)")),
                };
            }
            "min" => Operator::Min,
            "max" => Operator::Max,
            _ => {
                let text = self.text;
                return Err(Error::invalid(format!(
                    "size {text:?}: there is no function {name}; there are ceil, min and max"
                )));
            }
        };
        let left = self.nested(',')?;
        Ok(Expr::Binary(operator, Box::new(left), Box::new(self.nested(')')?)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn value(text: &str) -> Result<i64> {
        let names = |name: &str| match name {
            "n" => Ok(Dim::new(10)),
            "zero" => Ok(Dim::new(0)),
            other => Err(Error::invalid(format!("no {other}"))),
        };
        let dim = Expr::parse(text)?.eval(&names)?;
        Ok(dim.as_const().unwrap_or(-1))
    }

    #[test]
    fn arithmetic_is_that_of_paper() {
        let rows = [
            ("2*n + 1", 21),
            ("n - 2 - 3", 5),
            ("n / 4", 2),
            ("ceil(n / 4)", 3),
            ("ceil((n + 2) / 4) * 4", 12),
            ("n % 4", 2),
            ("min(n, 3) + max(n, 30)", 33),
            ("( n )", 10),
        ];
        for (text, want) in rows {
            assert_eq!(value(text).unwrap(), want, "{text}");
        }
    }

    #[test]
    fn errors_name_their_position() {
        let deep = "(".repeat(40);
        let long = "n*".repeat(80);
        let rows = [
            ("", "at character 1"),
            ("n +", "at character 4"),
            ("n n", "an operator is missing at character 3"),
            ("(n", "')'"),
            ("min(n)", "','"),
            ("ceil(n)", "a division"),
            ("sqrt(n)", "no function sqrt"),
            ("99999999999999999999", "63 bits"),
            ("n / zero", "divided by zero"),
            ("m", "no m"),
            ("n § 2", "an operator"),
            (&deep, "too deep"),
            (&long, "160 characters"),
        ];
        for (text, want) in rows {
            let error = value(text).unwrap_err().to_string();
            assert!(error.contains(want), "{text}: {error}");
        }
    }
}
