//! Einstein summation.

use super::place::here;
use super::{Axes, Tensor};
use crate::error::{Error, Result};

impl Tensor {
    /// Sums products of tensors over indices: in `ij,jk->ik` each letter names an axis, and letters
    /// that the result does not have are summed over. Without `->`, the result has the letters that
    /// occur once, in alphabetical order. Operands are contracted from left to right, each pair by
    /// one matrix product.
    ///
    /// ```
    /// # use warploom::{Runtime, Tensor};
    /// # fn main() -> warploom::Result<()> {
    /// let runtime = Runtime::auto()?;
    /// let (a, b) = (Tensor::ones(&runtime, [2, 3, 4]), Tensor::ones(&runtime, [2, 5, 4]));
    /// let c = Tensor::einsum("bik,bjk->bij", &[&a, &b])?;
    /// assert_eq!((c.shape(), c.max(..).item::<f32>()?), (&[2, 3, 5][..], 4.0));
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// Invalid if `equation` is malformed, a letter occurs twice in one operand, an operand has
    /// another rank, or a letter has two sizes. Other errors are deferred.
    #[track_caller]
    pub fn einsum<T: AsRef<Tensor>>(equation: &str, operands: &[T]) -> Result<Tensor> {
        let at = here();
        let fail = |why: String| Error::invalid(format!("einsum at {at}: {equation:?}: {why}"));
        let Parsed { inputs, output } = parse(equation).map_err(&fail)?;
        if inputs.len() != operands.len() {
            let why = format!("{} operands, not {}", operands.len(), inputs.len());
            return Err(fail(why));
        }
        let mut sizes: Vec<(char, usize)> = Vec::new();
        for (letters, operand) in inputs.iter().zip(operands) {
            let operand = operand.as_ref();
            operand.check()?;
            let given = operand.sizes();
            if given.len() != letters.len() {
                let letters: String = letters.iter().collect();
                return Err(fail(format!("{letters:?} is no name for the shape {given:?}")));
            }
            for (letter, size) in letters.iter().zip(given) {
                match sizes.iter().find(|(known, _)| known == letter) {
                    Some((_, known)) if known != size => {
                        return Err(fail(format!("{letter} is {known} and {size}")));
                    }
                    Some(_) => {}
                    None => sizes.push((*letter, *size)),
                }
            }
        }
        let terms = inputs.into_iter().zip(operands);
        let mut terms = terms.map(|(letters, t)| Term { letters, value: t.as_ref().clone() });
        let first = terms.next().ok_or_else(|| fail("no operands".into()))?;
        let mut rest: Vec<Term> = terms.collect();
        rest.reverse();
        let mut done = first;
        while let Some(next) = rest.pop() {
            let needed = |letter: &char| {
                output.contains(letter) || rest.iter().any(|term| term.letters.contains(letter))
            };
            done = done.contract(next, needed);
        }
        Ok(done.summed(|letter| output.contains(letter)).ordered(&output))
    }
}

struct Parsed {
    inputs: Vec<Vec<char>>,
    output: Vec<char>,
}

fn parse(equation: &str) -> std::result::Result<Parsed, String> {
    let spaceless: String = equation.chars().filter(|c| !c.is_whitespace()).collect();
    let (left, right) = match spaceless.split_once("->") {
        Some((left, right)) => (left, Some(right)),
        None => (&spaceless[..], None),
    };
    let letters = |part: &str| -> std::result::Result<Vec<char>, String> {
        let mut letters = Vec::new();
        for c in part.chars() {
            if !c.is_ascii_alphabetic() {
                return Err(format!("{c:?} is no letter"));
            }
            if letters.contains(&c) {
                return Err(format!("{c} occurs twice in {part:?}"));
            }
            letters.push(c);
        }
        Ok(letters)
    };
    let inputs = left.split(',').map(letters).collect::<std::result::Result<Vec<_>, _>>()?;
    let output = match right {
        Some(right) => letters(right)?,
        None => {
            let all: Vec<char> = inputs.iter().flatten().copied().collect();
            let once = |c: &char| all.iter().filter(|other| *other == c).count() == 1;
            let mut once: Vec<char> = all.iter().copied().filter(once).collect();
            once.sort_unstable();
            once
        }
    };
    if let Some(c) = output.iter().find(|c| !inputs.iter().any(|input| input.contains(c))) {
        return Err(format!("no operand has {c}"));
    }
    Ok(Parsed { inputs, output })
}

/// A tensor whose axes have letters.
struct Term {
    letters: Vec<char>,
    value: Tensor,
}

impl Term {
    /// Sums over the axes whose letters are not needed.
    fn summed(self, needed: impl Fn(&char) -> bool) -> Term {
        let over = self.letters.iter().enumerate().filter(|(_, letter)| !needed(letter));
        let axes: Vec<usize> = over.map(|(axis, _)| axis).collect();
        if axes.is_empty() {
            return self;
        }
        let value = self.value.sum(Axes::from(&axes[..]));
        Term { letters: self.letters.into_iter().filter(needed).collect(), value }
    }

    /// Brings the axes into the order of `letters`, which are all of the term's.
    fn ordered(&self, letters: &[char]) -> Tensor {
        let place = |letter: &char| self.letters.iter().position(|own| own == letter);
        let order: Vec<usize> = letters.iter().filter_map(place).collect();
        if order.iter().copied().eq(0..order.len()) {
            return self.value.clone();
        }
        self.value.permute(order)
    }

    /// Product of two terms, summed over the letters that are in both and not needed.
    fn contract(self, other: Term, needed: impl Fn(&char) -> bool) -> Term {
        let left = self.summed(|c| needed(c) || other.letters.contains(c));
        let right = other.summed(|c| needed(c) || left.letters.contains(c));
        let both = |c: &&char| right.letters.contains(c);
        let pick = |term: &Term, keep: &dyn Fn(&char) -> bool| -> Vec<char> {
            term.letters.iter().copied().filter(|c| keep(c)).collect()
        };
        let shared: Vec<char> = left.letters.iter().filter(both).copied().collect();
        let batch: Vec<char> = shared.iter().copied().filter(&needed).collect();
        let inner: Vec<char> = shared.iter().copied().filter(|c| !needed(c)).collect();
        let rows = pick(&left, &|c| !shared.contains(c));
        let columns = pick(&right, &|c| !shared.contains(c));
        let size = |letter: &char| {
            let find = |term: &Term| {
                let axis = term.letters.iter().position(|own| own == letter)?;
                term.value.sizes().get(axis).copied()
            };
            find(&left).or_else(|| find(&right)).unwrap_or(1)
        };
        let count = |letters: &[char]| letters.iter().map(&size).product::<usize>();
        let join = |parts: [&[char]; 3]| -> Vec<char> { parts.concat() };
        let (b, m, k, n) = (count(&batch), count(&rows), count(&inner), count(&columns));
        let a = left.ordered(&join([&batch, &rows, &inner])).reshape([b, m, k]);
        let c = right.ordered(&join([&batch, &inner, &columns])).reshape([b, k, n]);
        let letters = join([&batch, &rows, &columns]);
        let sizes: Vec<usize> = letters.iter().map(&size).collect();
        // Without a common index it is an outer product, which needs no sums.
        let product = if inner.is_empty() { a.mul(c) } else { a.matmul(c) };
        Term { letters, value: product.reshape(sizes) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equations_are_checked() {
        let error = |equation: &str| parse(equation).err().unwrap();
        assert_eq!(error("ii->i"), "i occurs twice in \"ii\"");
        assert_eq!(error("i1"), "'1' is no letter");
        assert_eq!(error("ij->k"), "no operand has k");
        assert_eq!(parse("b a , c b").unwrap().output, ['a', 'c']);
        assert!(parse("->").unwrap().output.is_empty());
    }
}
