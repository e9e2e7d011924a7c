//! A pack as an engine of a known operation: the operation, its conditions and its cost.

use std::collections::BTreeMap;

use toml::Spanned;

use super::Pack;
use super::expr::Expr;
use super::manifest::{File, FixedText, Manifest, Sizes};
use warploom_core::base::{ComputeMode, DType, Dim, Shape, ShapeClass};
use warploom_core::error::{Error, Result};
use warploom_core::ir::{BinaryOp, Custom, Op, RopePairs, UnaryOp};

/// A manifest's description of the operation that the pack executes.
#[derive(Clone, Debug)]
pub(super) struct Implements {
    /// Name of the operation.
    op: String,
    /// Required attribute values.
    when: BTreeMap<String, Attribute>,
    conditions: Vec<Condition>,
    flops: Option<Expr>,
    bytes: Option<Expr>,
    efficiency: Option<f64>,
}

/// The value of an operation's attribute.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Attribute {
    Number(f64),
    /// A keyword, one of those that the attribute allows.
    Text(&'static str),
}

/// A condition on sizes, such as `n <= 4096`.
#[derive(Clone, Debug)]
struct Condition {
    text: String,
    left: Expr,
    relation: Relation,
    right: Expr,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Relation {
    AtMost,
    AtLeast,
    Less,
    Greater,
    Equal,
    Unequal,
}

/// The relations with their signs. Longer signs come first, since `<` is a prefix of `<=`.
const RELATIONS: [(&str, Relation); 6] = [
    ("<=", Relation::AtMost),
    (">=", Relation::AtLeast),
    ("==", Relation::Equal),
    ("!=", Relation::Unequal),
    ("<", Relation::Less),
    (">", Relation::Greater),
];

/// The cost that a pack's manifest states, at the upper ends of a shape bucket.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct PackCost {
    /// Floating-point operations, if the manifest counts them.
    pub flops: Option<f64>,
    /// Bytes read and written, if the manifest counts them.
    pub bytes: Option<f64>,
    /// Fraction (0 to 1) of the roofline's speed that the kernel reaches, if the manifest states
    /// it.
    pub efficiency: Option<f64>,
}

/// An operation that packs may execute: its number of operands, and the names of its attributes,
/// each with the keywords that it allows, or none if it is a number.
struct Signature {
    operands: usize,
    attributes: &'static [(&'static str, &'static [&'static str])],
}

/// Operations that act on each row independently, so that leading dimensions may be merged. For
/// others, merging would change a broadcast or the rows that are gathered.
const BY_ROWS: [&str; 6] = ["softmax", "argmax", "matmul", "linear", "rms_norm", "layer_norm"];

const MODES: &[&str] = &["f32", "int8", "f16"];
const PAIRS: &[&str] = &["interleaved", "half"];

/// Operations that packs may execute, apart from elementwise ones. The rest have list attributes,
/// states, or sizes that change from run to run.
const OPERATIONS: [(&str, Signature); 9] = [
    ("select", Signature { operands: 3, attributes: &[] }),
    ("softmax", Signature { operands: 1, attributes: &[] }),
    ("argmax", Signature { operands: 1, attributes: &[] }),
    ("matmul", Signature { operands: 2, attributes: &[] }),
    ("linear", Signature { operands: 2, attributes: &[("mode", MODES)] }),
    ("rms_norm", Signature { operands: 2, attributes: &[("eps", &[])] }),
    ("layer_norm", Signature { operands: 3, attributes: &[("eps", &[])] }),
    ("rope", Signature { operands: 3, attributes: &[("pairs", PAIRS), ("rot_dim", &[])] }),
    ("gather", Signature { operands: 2, attributes: &[("axis", &[])] }),
];

fn signature(op: &str) -> Option<Signature> {
    let plain = |operands| Signature { operands, attributes: &[] };
    let known = OPERATIONS.into_iter().find(|(name, _)| *name == op).map(|(_, found)| found);
    let unary = UnaryOp::ALL.into_iter().any(|unary| unary.name() == op).then(|| plain(1));
    let binary = BinaryOp::ALL.into_iter().any(|binary| binary.name() == op).then(|| plain(2));
    known.or(unary).or(binary)
}

/// Returns whether the pack computes in f32 a product whose operands the graph allows to be f16.
fn is_exact(op: &Op, wanted: &Attribute) -> bool {
    let may = matches!(op, Op::Linear { mode: ComputeMode::F16 });
    may && *wanted == Attribute::Text(ComputeMode::F32.name())
}

/// Returns the attributes of an operation, under the names in its signature.
fn attributes(op: &Op) -> Vec<(&'static str, Attribute)> {
    use Attribute::{Number, Text};
    match op {
        Op::Linear { mode } => vec![("mode", Text(mode.name()))],
        // The decimal that users write, which differs from the f32 converted to f64.
        Op::RmsNorm { eps } | Op::LayerNorm { eps } => {
            vec![("eps", Number(eps.to_string().parse().unwrap_or(f64::from(*eps))))]
        }
        Op::Rope { pairs, rot_dim } => {
            let pairs = match pairs {
                RopePairs::Interleaved => "interleaved",
                RopePairs::Half => "half",
            };
            vec![("pairs", Text(pairs)), ("rot_dim", Number(*rot_dim as f64))]
        }
        Op::Gather { axis } => vec![("axis", Number(*axis as f64))],
        _ => Vec::new(),
    }
}

impl std::fmt::Display for Attribute {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Attribute::Number(number) => write!(f, "{number}"),
            Attribute::Text(text) => write!(f, "{text:?}"),
        }
    }
}

impl Implements {
    /// Reads `implements` and the keys that depend on it, and checks them against the pack's
    /// tensors and numbers.
    ///
    /// # Errors
    /// Bad file, with the line, if one of the keys is wrong.
    pub(super) fn read(
        file: &File<'_>,
        manifest: &Manifest,
        pack: &Pack,
    ) -> Result<Option<Implements>> {
        let Some(op) = &manifest.implements else {
            let other = [
                ("when", manifest.when.values().next().map(Spanned::span)),
                ("where", manifest.conditions.first().map(Spanned::span)),
                ("cost", manifest.cost.as_ref().map(Spanned::span)),
            ];
            return match other.into_iter().find_map(|(key, at)| Some((key, at?))) {
                Some((key, at)) => {
                    Err(file.fail(at, format!("{key}: is of a pack with `implements`")))
                }
                None => Ok(None),
            };
        };
        let name = op.get_ref().as_str();
        let fail = |what: String| file.fail(op.span(), format!("implements: {what}"));
        let Some(signature) = signature(name) else {
            let known: Vec<&str> = OPERATIONS.iter().map(|(name, _)| *name).collect();
            return Err(fail(format!(
                "{name:?} is not an operation that packs execute; known: {}, and the elementwise \
                 ones of one and two operands, such as silu and add",
                known.join(", ")
            )));
        };
        let (inputs, outputs) = (pack.inputs.len(), pack.outputs.len());
        if inputs != signature.operands || outputs != 1 {
            let want = signature.operands;
            return Err(fail(format!(
                "{name} has {want} operands and one result, and the pack {inputs} inputs and \
                 {outputs} outputs"
            )));
        }
        let when = fixed(file, manifest, name, &signature)?;
        let values = pack.values();
        for (attribute, words) in signature.attributes {
            if when.contains_key(*attribute) || (words.is_empty() && values.contains(attribute)) {
                continue;
            }
            let field = match words.is_empty() {
                true => {
                    "neither a field of the uniform struct has that name nor does `when` fix it"
                }
                false => "`when` does not fix it",
            };
            return Err(fail(format!("{name} has the attribute {attribute}, and {field}")));
        }
        // A plan must be able to derive every number of the block.
        let given = |number: &&super::Value| {
            number.size.is_some()
                || pack.default(&number.name).is_some()
                || signature.attributes.iter().any(|(attribute, _)| *attribute == number.name)
        };
        if let Some(number) = pack.fields.iter().find(|number| !given(number)) {
            return Err(fail(format!(
                "{} of the uniform block is not an attribute of {name}, and has no default",
                number.name
            )));
        }
        let conditions = manifest.conditions.iter().map(|text| condition(file, pack, text));
        let cost = manifest.cost.as_ref();
        let count = |key: &str, sizes: Option<&Sizes>| counted(file, pack, cost, key, sizes);
        let efficiency = cost.and_then(|cost| cost.get_ref().efficiency);
        if let (Some(cost), Some(share)) = (cost, efficiency)
            && !(share > 0.0 && share <= 1.0)
        {
            let what = format!("cost: efficiency {share} is not a share above 0 and up to 1");
            return Err(file.fail(cost.span(), what));
        }
        Ok(Some(Implements {
            op: name.into(),
            when,
            conditions: conditions.collect::<Result<_>>()?,
            flops: count("flops", cost.and_then(|cost| cost.get_ref().flops.as_ref()))?,
            bytes: count("bytes", cost.and_then(|cost| cost.get_ref().bytes.as_ref()))?,
            efficiency,
        }))
    }
}

/// Reads the attribute values that `when` fixes.
fn fixed(
    file: &File<'_>,
    manifest: &Manifest,
    op: &str,
    signature: &Signature,
) -> Result<BTreeMap<String, Attribute>> {
    let mut when = BTreeMap::new();
    for (name, value) in &manifest.when {
        let fail = |what: String| file.fail(value.span(), format!("when: {what}"));
        let known = signature.attributes.iter().find(|(attribute, _)| attribute == name);
        let Some((_, words)) = known else {
            let have: Vec<&str> = signature.attributes.iter().map(|(name, _)| *name).collect();
            return Err(fail(format!("{op} has no attribute {name}, but {have:?}")));
        };
        let attribute = match (value.get_ref(), words.is_empty()) {
            (FixedText::Number(number), true) => Some(Attribute::Number(*number)),
            (FixedText::Text(text), false) => {
                words.iter().find(|word| *word == text).map(|word| Attribute::Text(word))
            }
            _ => None,
        };
        let kind = if words.is_empty() { "a number".into() } else { format!("one of {words:?}") };
        let attribute = attribute.ok_or_else(|| fail(format!("{name} is not {kind}")))?;
        when.insert(name.clone(), attribute);
    }
    Ok(when)
}

/// Parses a condition of `where`.
fn condition(file: &File<'_>, pack: &Pack, text: &Spanned<String>) -> Result<Condition> {
    let fail = |what: String| file.fail(text.span(), format!("where: {what}"));
    let whole = text.get_ref();
    let found = RELATIONS.iter().find_map(|(sign, relation)| {
        whole.split_once(sign).map(|(left, right)| (left, *relation, right))
    });
    let Some((left, relation, right)) = found else {
        return Err(fail(format!("{whole:?} is not a comparison: use <=, >=, ==, !=, < or >")));
    };
    let side = |text: &str| -> Result<Expr> {
        let expr = Expr::parse(text).map_err(|e| fail(e.to_string()))?;
        known(pack, &expr).map_err(fail)?;
        Ok(expr)
    };
    Ok(Condition { text: whole.clone(), left: side(left)?, relation, right: side(right)? })
}

/// Parses an expression of `cost`.
fn counted(
    file: &File<'_>,
    pack: &Pack,
    cost: Option<&Spanned<super::manifest::CostText>>,
    key: &str,
    sizes: Option<&Sizes>,
) -> Result<Option<Expr>> {
    let (Some(cost), Some(sizes)) = (cost, sizes) else { return Ok(None) };
    let fail = |what: String| file.fail(cost.span(), format!("cost: {key}: {what}"));
    let expr = match sizes {
        Sizes::Number(number) => Expr::Number(*number),
        Sizes::Text(text) => Expr::parse(text).map_err(|e| fail(e.to_string()))?,
        Sizes::Many(_) => return Err(fail("is one number".into())),
    };
    known(pack, &expr).map_err(fail)?;
    Ok(Some(expr))
}

/// Checks that every name in an expression is a size of the pack.
fn known(pack: &Pack, expr: &Expr) -> Result<(), String> {
    let (mut names, have) = (Vec::new(), pack.symbols());
    expr.names(&mut names);
    match names.into_iter().find(|name| !have.contains(name)) {
        Some(name) => Err(format!("there is no size {name}, but {have:?}")),
        None => Ok(()),
    }
}

/// Adapts a shape to the rank of a tensor of the pack: merges leading dimensions, or adds leading
/// dimensions of 1.
fn folded(shape: &Shape, rank: usize) -> Shape {
    let dims = shape.dims();
    if rank == 0 || dims.len() == rank {
        return shape.clone();
    }
    match dims.len().checked_sub(rank) {
        Some(more) => {
            let (lead, rest) = dims.split_at(more + 1);
            let rows = lead.iter().fold(Dim::new(1), |rows, dim| rows * dim.clone());
            Shape::new(std::iter::once(rows).chain(rest.iter().cloned()))
        }
        None => {
            let ones = vec![Dim::new(1); rank - dims.len()];
            Shape::new(ones.into_iter().chain(dims.iter().cloned()))
        }
    }
}

impl Condition {
    /// Returns whether the condition holds for every size in the shape bucket.
    fn holds(&self, class: &ShapeClass, size: &dyn Fn(&str) -> Result<Dim>) -> Result<bool> {
        let (left, right) = (self.left.eval(size)?, self.right.eval(size)?);
        let equal = left == right;
        let (low, high) = class.bounds(&(left - right))?;
        Ok(match self.relation {
            Relation::AtMost => high <= 0,
            Relation::AtLeast => low >= 0,
            Relation::Less => high < 0,
            Relation::Greater => low > 0,
            Relation::Equal => equal || (low, high) == (0, 0),
            Relation::Unequal => low > 0 || high < 0,
        })
    }
}

impl Pack {
    /// Returns the name of the operation that the pack executes, if its manifest has `implements`.
    pub fn operation(&self) -> Option<&str> {
        self.implements.as_ref().map(|implements| implements.op.as_str())
    }

    /// Returns whether the manifest has conditions (`where`), which some sizes may not meet.
    pub fn is_conditional(&self) -> bool {
        self.implements.as_ref().is_some_and(|implements| !implements.conditions.is_empty())
    }

    /// Returns the kernel that executes an operation of the graph on operands of these shapes, and
    /// its cost over the shape bucket `class`. The kernel has the constants that
    /// [`Pack::keep_tuned`] stored for the device, if any.
    ///
    /// # Errors
    /// The reason why the pack cannot execute the operation: an attribute, a shape, a type or a
    /// condition.
    pub fn implement(
        &self,
        device: &str,
        op: &Op,
        operands: &[(Shape, DType)],
        output: (&Shape, DType),
        class: &ShapeClass,
    ) -> Result<(Custom, PackCost), String> {
        let Some(implements) = self.implements.as_ref().filter(|own| own.op == op.name()) else {
            return Err(format!("executes no {}", op.name()));
        };
        if operands.len() != self.inputs.len() {
            return Err(format!("{} operands, and it takes {}", operands.len(), self.inputs.len()));
        }
        let mut values: Vec<(&str, f64)> = Vec::new();
        let names = self.values();
        for (name, value) in attributes(op) {
            if let Some(wanted) = implements.when.get(name)
                && *wanted != value
                && !is_exact(op, wanted)
            {
                return Err(format!("{name} is {value}, and it executes {wanted}"));
            }
            if let (Attribute::Number(number), true) = (value, names.contains(&name)) {
                values.push((name, number));
            }
        }
        let more = |((shape, _), named): (&(Shape, DType), usize)| shape.rank() > named;
        let named = self.inputs.iter().map(|tensor| tensor.shape.len());
        let differs = |(shape, _): &&(Shape, DType)| shape != output.0;
        if let (false, true, Some((shape, _))) = (
            BY_ROWS.contains(&op.name()),
            operands.iter().zip(named).any(more),
            operands.iter().find(differs),
        ) {
            let result = output.0;
            return Err(format!(
                "an operand of {shape} for a result of {result}, with more dimensions than it names"
            ));
        }
        let shapes = operands
            .iter()
            .zip(&self.inputs)
            .map(|((shape, dtype), tensor)| (folded(shape, tensor.shape.len()), *dtype));
        let shapes: Vec<(Shape, DType)> = shapes.collect();
        let text_of = |e: Error| e.to_string();
        let custom = self.call_on(device, &shapes, &values).map_err(text_of)?;
        let rank = self.outputs.first().map_or(0, |tensor| tensor.shape.len());
        let (want, dtype) = (folded(output.0, rank), output.1);
        match custom.outputs.first() {
            Some((shape, made)) if *shape == want && *made == dtype => {}
            made => {
                let made = made.map_or(String::new(), |(shape, dtype)| format!("{dtype}{shape}"));
                return Err(format!("makes {made}, and the result is {dtype}{want}"));
            }
        }
        let sizes = self.sizes(&shapes, &values).map_err(text_of)?;
        let size = |name: &str| {
            let missing = || Error::invalid(format!("size {name} has no value"));
            sizes.get(name).cloned().ok_or_else(missing)
        };
        for condition in &implements.conditions {
            if !condition.holds(class, &size).map_err(text_of)? {
                return Err(format!("not for all sizes here: {}", condition.text));
            }
        }
        let count = |expr: &Option<Expr>| -> Option<f64> {
            let dim = expr.as_ref()?.eval(&size).ok()?;
            class.upper(&dim).ok().map(|count| count as f64)
        };
        let (flops, bytes) = (count(&implements.flops), count(&implements.bytes));
        Ok((custom, PackCost { flops, bytes, efficiency: implements.efficiency }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn signatures_name_the_attributes_that_operations_have() {
        for case in warploom_cases::cases() {
            for node in case.graph.nodes() {
                let Some(signature) = signature(node.op.name()) else { continue };
                let (own, have) = (attributes(&node.op), signature.attributes);
                assert_eq!(own.len(), have.len(), "{}", node.op.name());
                for ((name, value), (wanted, words)) in own.into_iter().zip(have) {
                    assert_eq!(name, *wanted);
                    match value {
                        Attribute::Number(_) => assert!(words.is_empty()),
                        Attribute::Text(text) => assert!(words.contains(&text), "{text}"),
                    }
                }
                assert_eq!(node.inputs.len(), signature.operands, "{}", node.op.name());
            }
        }
    }

    #[test]
    fn leading_dimensions_are_one() {
        let fold = |dims: &[i64], rank| folded(&Shape::new(dims.iter().copied()), rank);
        assert_eq!(fold(&[2, 3, 4], 2), Shape::new([6, 4]));
        assert_eq!(fold(&[2, 3, 4], 1), Shape::new([24]));
        assert_eq!(fold(&[4], 2), Shape::new([1, 4]));
        assert_eq!(fold(&[2, 4], 2), Shape::new([2, 4]));
    }
}
