//! Test cases of a pack: values, inputs and expected outputs.

use std::collections::BTreeMap;

use super::assemble::bits;
use super::load::{inside, read_bytes};
use super::manifest::{self, CaseText};
use super::{Pack, TensorSpec};
use warploom_core::base::DType;
use warploom_core::error::{Error, Result};

/// Maximum number of elements in a tensor of a case.
const MAX_ELEMENTS: u64 = 1 << 26;

/// A test case: one run of a pack.
#[derive(Clone, Debug, PartialEq)]
pub struct Case {
    /// Name for display.
    pub name: String,
    /// Values of sizes and of numbers in the uniform block, by name.
    pub values: BTreeMap<String, f64>,
    /// Contents of inputs, by name; others are [`Numbers::Random`].
    pub inputs: BTreeMap<String, Numbers>,
    /// Expected outputs, by name.
    pub outputs: BTreeMap<String, Numbers>,
}

/// The contents of a tensor.
#[derive(Clone, Debug, PartialEq)]
pub enum Numbers {
    /// Given values, row-major; a single value fills the tensor.
    Given(Vec<f64>),
    /// Elements of 4 bytes, little-endian, in a file of the pack's folder.
    File(String),
    /// Random values in a range; both ends are included for integers.
    Random(f64, f64),
    /// The values 0, 1, 2 and so on.
    Iota,
}

impl Case {
    pub(super) fn read(pack: &Pack, text: &CaseText, number: usize) -> Result<Case> {
        let known = pack.values();
        if let Some(name) = text.values.keys().find(|name| !known.contains(&name.as_str())) {
            return Err(Error::invalid(format!("case: no value {name}; there are {known:?}")));
        }
        let numbers = |key: &str, map: &BTreeMap<String, toml::Spanned<manifest::Numbers>>| {
            let specs: Vec<TensorSpec<'_>> = match key {
                "inputs" => pack.inputs().collect(),
                _ => pack.outputs().collect(),
            };
            let mut found = BTreeMap::new();
            for (name, value) in map {
                let Some(spec) = specs.iter().find(|spec| spec.name == name) else {
                    let have: Vec<&str> = specs.iter().map(|spec| spec.name).collect();
                    let what = format!("case: {name} is not one of the {key} {have:?}");
                    return Err(Error::invalid(what));
                };
                let value = Numbers::read(value.get_ref(), spec)
                    .map_err(|e| e.context(format!("case: {key}: {name}")))?;
                if key == "outputs" && matches!(value, Numbers::Random(..)) {
                    return Err(Error::invalid(format!("case: {name} cannot be random")));
                }
                found.insert(name.clone(), value);
            }
            Ok(found)
        };
        let (inputs, outputs) =
            (numbers("inputs", &text.inputs)?, numbers("outputs", &text.outputs)?);
        let name = text.name.clone().unwrap_or_else(|| format!("case {}", number + 1));
        Ok(Case { name, values: text.values.clone(), inputs, outputs })
    }
}

impl Numbers {
    /// Returns the default contents of an input of this type.
    pub fn usual(dtype: DType) -> Numbers {
        match dtype {
            DType::F32 => Numbers::Random(-1.0, 1.0),
            _ => Numbers::Random(0.0, 255.0),
        }
    }

    fn read(text: &manifest::Numbers, spec: &TensorSpec<'_>) -> Result<Numbers> {
        let text = match text {
            manifest::Numbers::Given(numbers) => {
                let wrong = numbers.iter().find(|number| bits(**number, spec.dtype).is_none());
                return match wrong {
                    Some(number) => {
                        Err(Error::invalid(format!("{number} is not a value of {}", spec.dtype)))
                    }
                    None => Ok(Numbers::Given(numbers.clone())),
                };
            }
            manifest::Numbers::Named(text) => text.trim(),
        };
        match text {
            "random" => return Ok(Numbers::usual(spec.dtype)),
            "iota" => return Ok(Numbers::Iota),
            "zeros" => return Ok(Numbers::Given(vec![0.0])),
            "ones" => return Ok(Numbers::Given(vec![1.0])),
            _ => {}
        }
        let range = text.strip_prefix("random(").and_then(|rest| rest.strip_suffix(')'));
        if let Some(range) = range {
            let ends = range.split_once(',').and_then(|(low, high)| {
                Some((low.trim().parse::<f64>().ok()?, high.trim().parse::<f64>().ok()?))
            });
            let fits = |end: f64| end.is_finite() && bits(end, spec.dtype).is_some();
            return match ends {
                Some((low, high)) if low <= high && fits(low) && fits(high) => {
                    Ok(Numbers::Random(low, high))
                }
                _ => Err(Error::invalid(format!("{text:?} is not random(least, most)"))),
            };
        }
        match text.ends_with(".bin") {
            true => Ok(Numbers::File(text.into())),
            false => Err(Error::invalid(format!(
                "{text:?} is not one of random, random(least, most), iota, zeros, ones, a list of \
                 numbers and the name of a .bin file"
            ))),
        }
    }

    /// Returns `elements` elements as 32-bit words. Equal seeds yield equal random values.
    ///
    /// # Errors
    /// Invalid if the number of given values differs, a value does not fit the type or `elements`
    /// is too large; io or bad file if a file cannot be read or has a different size.
    pub fn words(&self, pack: &Pack, dtype: DType, elements: u64, seed: u64) -> Result<Vec<u32>> {
        if elements > MAX_ELEMENTS {
            return Err(Error::invalid(format!("{elements} elements, at most {MAX_ELEMENTS}")));
        }
        let bits = |number: f64| {
            bits(number, dtype)
                .ok_or_else(|| Error::invalid(format!("{number} is not a value of {dtype}")))
        };
        match self {
            Numbers::Given(numbers) => match numbers.as_slice() {
                [one] => Ok(vec![bits(*one)?; elements as usize]),
                many if many.len() as u64 == elements => many.iter().map(|n| bits(*n)).collect(),
                many => {
                    let have = many.len();
                    Err(Error::invalid(format!("{have} numbers are given for {elements}")))
                }
            },
            Numbers::File(name) => {
                let Some(folder) = &pack.folder else {
                    return Err(Error::invalid(format!("{name}: the pack is from no folder")));
                };
                let path = inside(folder, name)?;
                let most = elements as usize * 4;
                let bytes = read_bytes(&path, most)?;
                if bytes.len() != most {
                    let have = bytes.len();
                    let shown = path.display();
                    return Err(Error::bad_file(format!("{shown}: {have} bytes, not {most}")));
                }
                let words = bytes.chunks_exact(4).map(|w| [w[0], w[1], w[2], w[3]]);
                Ok(words.map(u32::from_le_bytes).collect())
            }
            Numbers::Iota => (0..elements).map(|i| bits(i as f64)).collect(),
            Numbers::Random(low, high) => {
                let mut state = seed;
                (0..elements).map(|_| bits(random(&mut state, dtype, *low, *high))).collect()
            }
        }
    }
}

/// Returns a random number from `low` to `high`, by SplitMix64.
fn random(state: &mut u64, dtype: DType, low: f64, high: f64) -> f64 {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mut z = *state;
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    let unit = ((z ^ (z >> 31)) >> 11) as f64 / (1_u64 << 53) as f64;
    match dtype {
        DType::F32 => low + unit * (high - low),
        _ => (low + unit * (high - low + 1.0)).floor().min(high),
    }
}
