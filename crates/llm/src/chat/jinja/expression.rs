//! Parses expressions.

use super::ast::{Args, Binary, Compare, Expr};
use super::lexer::Token;
use super::parser::{MAX_NESTED, Parsed, Parser};

impl Parser {
    /// Parses a nestable construct, one level deeper.
    fn deeper<T>(&mut self, parse: impl FnOnce(&mut Parser) -> Parsed<T>) -> Parsed<T> {
        self.nested += 1;
        if self.nested > MAX_NESTED {
            return self.fail(format!("nested more than {MAX_NESTED} deep"));
        }
        let parsed = parse(self)?;
        self.nested -= 1;
        Ok(parsed)
    }

    /// Parses an expression, or a tuple of several separated by commas. `conditional` allows
    /// `a if b`; the names in `ends` end the tuple.
    pub(super) fn tuple(&mut self, conditional: bool, ends: &[&str]) -> Parsed<Expr> {
        self.tuple_in(conditional, ends, false)
    }

    fn tuple_in(&mut self, conditional: bool, ends: &[&str], brackets: bool) -> Parsed<Expr> {
        let mut items = Vec::new();
        let mut is_tuple = false;
        loop {
            let ended = matches!(self.peek(), Token::VariableEnd | Token::BlockEnd)
                || self.is_sign(")")
                || ends.iter().any(|end| self.is_name(end));
            if ended {
                break;
            }
            items.push(self.expression(conditional)?);
            match self.skip_sign(",") {
                true => is_tuple = true,
                false => break,
            }
        }
        match items.pop() {
            Some(only) if !is_tuple => Ok(only),
            None if !brackets => self.unexpected(),
            last => {
                items.extend(last);
                Ok(Expr::Tuple(items))
            }
        }
    }

    pub(super) fn expression(&mut self, conditional: bool) -> Parsed<Expr> {
        match conditional {
            true => self.deeper(Parser::conditional),
            false => self.deeper(Parser::or),
        }
    }

    fn conditional(&mut self) -> Parsed<Expr> {
        let mut value = self.or()?;
        while self.skip_name("if") {
            let test = self.or()?;
            let otherwise = match self.skip_name("else") {
                true => Some(Box::new(self.deeper(Parser::conditional)?)),
                false => None,
            };
            value = Expr::Cond(Box::new(test), Box::new(value), otherwise);
        }
        Ok(value)
    }

    fn or(&mut self) -> Parsed<Expr> {
        let mut left = self.and()?;
        while self.skip_name("or") {
            left = Expr::Or(Box::new(left), Box::new(self.and()?));
        }
        Ok(left)
    }

    fn and(&mut self) -> Parsed<Expr> {
        let mut left = self.not()?;
        while self.skip_name("and") {
            left = Expr::And(Box::new(left), Box::new(self.not()?));
        }
        Ok(left)
    }

    fn not(&mut self) -> Parsed<Expr> {
        match self.skip_name("not") {
            true => Ok(Expr::Not(Box::new(self.deeper(Parser::not)?))),
            false => self.compare(),
        }
    }

    fn compare(&mut self) -> Parsed<Expr> {
        let left = self.sum()?;
        let mut rest = Vec::new();
        loop {
            let op = match self.peek() {
                Token::Sign("==") => Compare::Eq,
                Token::Sign("!=") => Compare::Ne,
                Token::Sign("<") => Compare::Lt,
                Token::Sign("<=") => Compare::Le,
                Token::Sign(">") => Compare::Gt,
                Token::Sign(">=") => Compare::Ge,
                Token::Name(name) if **name == *"in" => Compare::In,
                Token::Name(name) if **name == *"not" => {
                    if !matches!(self.look(1), Token::Name(name) if **name == *"in") {
                        break;
                    }
                    self.skip();
                    Compare::NotIn
                }
                _ => break,
            };
            self.skip();
            rest.push((op, self.sum()?));
        }
        Ok(if rest.is_empty() { left } else { Expr::Compare(Box::new(left), rest) })
    }

    fn sum(&mut self) -> Parsed<Expr> {
        let mut left = self.concat()?;
        loop {
            let op = match self.peek() {
                Token::Sign("+") => Binary::Add,
                Token::Sign("-") => Binary::Sub,
                _ => return Ok(left),
            };
            self.skip();
            left = Expr::Binary(op, Box::new(left), Box::new(self.concat()?));
        }
    }

    fn concat(&mut self) -> Parsed<Expr> {
        let first = self.product()?;
        if !self.is_sign("~") {
            return Ok(first);
        }
        let mut parts = vec![first];
        while self.skip_sign("~") {
            parts.push(self.product()?);
        }
        Ok(Expr::Concat(parts))
    }

    fn product(&mut self) -> Parsed<Expr> {
        let mut left = self.power()?;
        loop {
            let op = match self.peek() {
                Token::Sign("*") => Binary::Mul,
                Token::Sign("/") => Binary::Div,
                Token::Sign("//") => Binary::FloorDiv,
                Token::Sign("%") => Binary::Mod,
                _ => return Ok(left),
            };
            self.skip();
            left = Expr::Binary(op, Box::new(left), Box::new(self.power()?));
        }
    }

    fn power(&mut self) -> Parsed<Expr> {
        let mut left = self.unary(true)?;
        while self.skip_sign("**") {
            left = Expr::Binary(Binary::Pow, Box::new(left), Box::new(self.unary(true)?));
        }
        Ok(left)
    }

    fn unary(&mut self, filters: bool) -> Parsed<Expr> {
        let mut value = if self.skip_sign("-") {
            Expr::Neg(Box::new(self.deeper(|parser| parser.unary(false))?))
        } else if self.skip_sign("+") {
            Expr::Pos(Box::new(self.deeper(|parser| parser.unary(false))?))
        } else {
            self.primary()?
        };
        value = self.postfix(value)?;
        if !filters {
            return Ok(value);
        }
        loop {
            value = if self.is_sign("|") {
                self.filters(value, false)?
            } else if self.skip_name("is") {
                self.test(value)?
            } else if self.is_sign("(") {
                let args = self.arguments()?;
                Expr::Call(Box::new(value), Box::new(args))
            } else {
                return Ok(value);
            };
        }
    }

    fn primary(&mut self) -> Parsed<Expr> {
        match self.peek().clone() {
            Token::Name(name) => {
                self.skip();
                Ok(match &*name {
                    "true" | "True" => Expr::Bool(true),
                    "false" | "False" => Expr::Bool(false),
                    "none" | "None" => Expr::None,
                    _ => {
                        self.reads(&name);
                        Expr::Name(name)
                    }
                })
            }
            Token::Text(mut text) => {
                self.skip();
                // Adjacent string literals are joined.
                while let Token::Text(more) = self.peek() {
                    text.push_str(more);
                    self.at_next();
                }
                Ok(Expr::Text(text.into()))
            }
            Token::Int(number) => {
                self.skip();
                Ok(Expr::Int(number))
            }
            Token::Float(number) => {
                self.skip();
                Ok(Expr::Float(number))
            }
            Token::Sign("(") => {
                self.skip();
                let value = self.tuple_in(true, &[], true)?;
                self.expect_sign(")")?;
                Ok(value)
            }
            Token::Sign("[") => {
                self.skip();
                let mut items = Vec::new();
                while !self.is_sign("]") {
                    if !items.is_empty() {
                        self.expect_sign(",")?;
                        if self.is_sign("]") {
                            break;
                        }
                    }
                    items.push(self.expression(true)?);
                }
                self.skip();
                Ok(Expr::List(items))
            }
            Token::Sign("{") => {
                self.skip();
                let mut pairs = Vec::new();
                while !self.is_sign("}") {
                    if !pairs.is_empty() {
                        self.expect_sign(",")?;
                        if self.is_sign("}") {
                            break;
                        }
                    }
                    let key = self.expression(true)?;
                    self.expect_sign(":")?;
                    pairs.push((key, self.expression(true)?));
                }
                self.skip();
                Ok(Expr::Dict(pairs))
            }
            _ => self.unexpected(),
        }
    }

    fn at_next(&mut self) {
        self.skip();
    }

    fn postfix(&mut self, mut value: Expr) -> Parsed<Expr> {
        loop {
            value = if self.skip_sign(".") {
                match self.peek().clone() {
                    Token::Name(name) => {
                        self.skip();
                        Expr::Attr(Box::new(value), name)
                    }
                    Token::Int(number) => {
                        self.skip();
                        Expr::Item(Box::new(value), Box::new(Expr::Int(number)))
                    }
                    _ => return self.unexpected(),
                }
            } else if self.skip_sign("[") {
                self.subscript(value)?
            } else if self.is_sign("(") {
                let args = self.arguments()?;
                Expr::Call(Box::new(value), Box::new(args))
            } else {
                return Ok(value);
            };
        }
    }

    /// Parses the rest of a subscript or slice, after `[`.
    fn subscript(&mut self, value: Expr) -> Parsed<Expr> {
        if self.skip_sign("]") {
            return Ok(Expr::Item(Box::new(value), Box::new(Expr::Tuple(Vec::new()))));
        }
        let part = |parser: &mut Parser| match parser.is_sign(":") || parser.is_sign("]") {
            true => Ok(None),
            false => parser.expression(true).map(Some),
        };
        let start = part(self)?;
        if self.skip_sign(":") {
            let stop = part(self)?;
            let step = match self.skip_sign(":") {
                true => part(self)?,
                false => None,
            };
            self.expect_sign("]")?;
            return Ok(Expr::Slice(Box::new(value), Box::new([start, stop, step])));
        }
        let Some(first) = start else { return self.unexpected() };
        if self.skip_sign("]") {
            return Ok(Expr::Item(Box::new(value), Box::new(first)));
        }
        let mut items = vec![first];
        while self.skip_sign(",") {
            items.push(self.expression(true)?);
        }
        self.expect_sign("]")?;
        Ok(Expr::Item(Box::new(value), Box::new(Expr::Tuple(items))))
    }

    fn arguments(&mut self) -> Parsed<Args> {
        self.expect_sign("(")?;
        let mut args = Args::default();
        let mut first = true;
        while !self.is_sign(")") {
            if !first {
                self.expect_sign(",")?;
                if self.is_sign(")") {
                    break;
                }
            }
            first = false;
            let wrong = match (self.peek(), self.look(1)) {
                (Token::Sign("*"), _) => args.star.is_some() || args.stars.is_some(),
                (Token::Sign("**"), _) => args.stars.is_some(),
                (Token::Name(_), Token::Sign("=")) => args.stars.is_some(),
                _ => args.star.is_some() || args.stars.is_some() || !args.named.is_empty(),
            };
            if wrong {
                return self.fail("arguments in an order that Jinja does not know");
            }
            if self.skip_sign("*") {
                args.star = Some(Box::new(self.expression(true)?));
            } else if self.skip_sign("**") {
                args.stars = Some(Box::new(self.expression(true)?));
            } else if let (Token::Name(name), Token::Sign("=")) = (self.peek(), self.look(1)) {
                let name = name.clone();
                if args.named.iter().any(|(known, _)| *known == name) {
                    return self.fail(format!("the argument {name:?} twice"));
                }
                self.skip();
                self.skip();
                args.named.push((name, self.expression(true)?));
            } else {
                args.positional.push(self.expression(true)?);
            }
        }
        self.expect_sign(")")?;
        Ok(args)
    }

    /// Parses the filters after a value; `inline` is set if the first has no `|` before it.
    pub(super) fn filters(&mut self, mut value: Expr, mut inline: bool) -> Parsed<Expr> {
        while inline || self.skip_sign("|") {
            inline = false;
            let mut name = self.name()?;
            while self.skip_sign(".") {
                name = format!("{name}.{}", self.name()?).into();
            }
            let args = match self.is_sign("(") {
                true => self.arguments()?,
                false => Args::default(),
            };
            value = Expr::Filter(Box::new(value), name, Box::new(args));
        }
        Ok(value)
    }

    /// Parses the rest of a test, after `is`.
    fn test(&mut self, value: Expr) -> Parsed<Expr> {
        let negated = self.skip_name("not");
        let name = self.name()?;
        let args = match self.peek() {
            Token::Sign("(") => self.arguments()?,
            Token::Name(word) if matches!(&**word, "else" | "or" | "and") => Args::default(),
            Token::Name(word) if **word == *"is" => {
                return self.fail("several tests of one value");
            }
            Token::Name(_) | Token::Text(_) | Token::Int(_) | Token::Float(_) => {
                let arg = self.primary()?;
                Args { positional: vec![self.postfix(arg)?], ..Args::default() }
            }
            Token::Sign("[" | "{") => {
                let arg = self.deeper(Parser::primary)?;
                Args { positional: vec![self.postfix(arg)?], ..Args::default() }
            }
            _ => Args::default(),
        };
        let test = Expr::Test(Box::new(value), name, Box::new(args));
        Ok(if negated { Expr::Not(Box::new(test)) } else { test })
    }
}
