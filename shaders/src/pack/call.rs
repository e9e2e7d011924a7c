//! Calls a pack: binds its sizes to the shapes of operands.

use std::collections::BTreeMap;

use super::assemble::bits;
use super::expr::Expr;
use super::manifest::Declared;
use super::{Launch, Pack, Value};
use warploom_core::base::{DType, Dim, Shape};
use warploom_core::error::{Error, Result};
use warploom_core::ir::{Custom, CustomWord, Graph, NodeId, Op};

/// The largest number up to which `f64` holds all integers exactly: 2^53.
const MAX_WHOLE: f64 = 9_007_199_254_740_992.0;

impl Pack {
    /// Returns the kernel for operands of these shapes. `values` gives, by name, the sizes that no
    /// operand determines and the numbers of the uniform block.
    ///
    /// # Errors
    /// Invalid if an operand does not fit, or if a value is missing, unknown or does not fit its
    /// type. The message names the pack, the tensor or value, and the sizes.
    pub fn call(&self, operands: &[(Shape, DType)], values: &[(&str, f64)]) -> Result<Custom> {
        self.call_on("", operands, values)
    }

    /// Same as [`Pack::call`], with the constants that [`Pack::keep_tuned`] stored for this device,
    /// or else the manifest's.
    ///
    /// # Errors
    /// Same as [`Pack::call`].
    pub fn call_on(
        &self,
        device: &str,
        operands: &[(Shape, DType)],
        values: &[(&str, f64)],
    ) -> Result<Custom> {
        let (constants, workgroup) = match self.tuned.get(device) {
            Some((constants, workgroup)) => (constants, *workgroup),
            None => (&self.constants, self.workgroup),
        };
        let call = self.call_inner(operands, values, constants, workgroup);
        call.map_err(|e| e.context(format!("pack {}", self.name)))
    }

    /// Returns the shapes and types of the operands for these sizes, given by name. A missing size
    /// has the manifest's default or, without one, `otherwise`.
    ///
    /// # Errors
    /// Invalid if a size has no value or is not a non-negative integer, or if a shape does not
    /// consist of complete elements of the shader's array.
    pub fn operands(
        &self,
        values: &BTreeMap<String, f64>,
        otherwise: Option<u64>,
    ) -> Result<Vec<(Shape, DType)>> {
        let size = |name: &str| {
            let given = values.get(name).copied().or_else(|| self.default(name));
            match given.or(otherwise.map(|size| size as f64)) {
                Some(value) if value.fract() == 0.0 && (0.0..=MAX_WHOLE).contains(&value) => {
                    Ok(Dim::new(value as i64))
                }
                Some(value) => Err(Error::invalid(format!("{name} = {value} is not a size"))),
                None => Err(Error::invalid(format!("size {name} has no value"))),
            }
        };
        let shapes = self.inputs.iter().map(|tensor| {
            let dims = tensor.shape.iter().map(|expr| expr.eval(&size));
            let shape: Shape = dims.collect::<Result<Vec<Dim>>>()?.into_iter().collect();
            self.fits(tensor, &shape)?;
            Ok((shape, self.spec(tensor).dtype))
        });
        let shapes = shapes.collect::<Result<Vec<_>>>();
        shapes.map_err(|e: Error| e.context(format!("pack {}", self.name)))
    }

    /// Returns the pack with these `override` constants, by name or `@id`, in place of the
    /// manifest's; tuned constants are dropped.
    ///
    /// # Errors
    /// Compile or invalid, with file and line, if the shader lacks a constant, its type cannot hold
    /// the value, or array or workgroup sizes become invalid.
    pub fn with_constants(&self, constants: &[(&str, f64)]) -> Result<Pack> {
        let mut pack = self.clone();
        for (name, value) in constants {
            let known = self.shader.overrides.iter().find(|known| known.is_called(name));
            let name = known.map_or(*name, |known| known.name.as_str());
            pack.constants.insert(name.to_string(), *value);
        }
        pack.workgroup = pack.shader.workgroup(&pack.constants)?;
        pack.tuned.clear();
        Ok(pack)
    }

    fn call_inner(
        &self,
        operands: &[(Shape, DType)],
        values: &[(&str, f64)],
        constants: &BTreeMap<String, f64>,
        workgroup: [u32; 3],
    ) -> Result<Custom> {
        let known = self.values();
        for (i, (name, _)) in values.iter().enumerate() {
            if !known.contains(name) {
                return Err(Error::invalid(format!("no value {name:?}; it takes {known:?}")));
            }
            if values[..i].iter().any(|(other, _)| other == name) {
                return Err(Error::invalid(format!("value {name:?} is given twice")));
            }
        }
        let sizes = self.sizes(operands, values)?;
        let size = |name: &str| {
            sizes.get(name).cloned().ok_or_else(|| {
                Error::invalid(format!(
                    "size {name} has no value: no operand determines it; give it in the call or \
                     in `defaults` in {}",
                    self.file
                ))
            })
        };
        let shape = |tensor: &Declared| -> Result<Shape> {
            let dims = tensor.shape.iter().map(|expr| expr.eval(&size));
            let shape: Shape = dims.collect::<Result<Vec<Dim>>>()?.into_iter().collect();
            self.fits(tensor, &shape)?;
            Ok(shape)
        };
        for (tensor, (have, _)) in self.inputs.iter().zip(operands) {
            let want = shape(tensor)?;
            if want != *have {
                let name = &tensor.name;
                return Err(Error::invalid(format!("{name} is {have}, must be {want}")));
            }
        }
        let outputs = (self.outputs.iter())
            .map(|tensor| Ok((shape(tensor)?, self.spec(tensor).dtype)))
            .collect::<Result<Vec<_>>>()?;
        let grid = self.grid(workgroup, &outputs, &size)?;
        Ok(Custom {
            name: self.name.clone(),
            wgsl: self.wgsl.clone(),
            entry: self.shader.entry.clone(),
            constants: constants.clone(),
            params: self.params(values, &size)?,
            bindings: self.bindings.clone(),
            inputs: operands.to_vec(),
            outputs,
            output: 0,
            grid,
            writes_all: self.writes_all,
            deterministic: self.deterministic,
            twins: self.twins.clone(),
        })
    }

    /// Returns every size that has a value from the operands' shapes, the call or the manifest.
    pub(super) fn sizes(
        &self,
        operands: &[(Shape, DType)],
        values: &[(&str, f64)],
    ) -> Result<BTreeMap<String, Dim>> {
        if operands.len() != self.inputs.len() {
            let names: Vec<&str> = self.inputs.iter().map(|tensor| tensor.name.as_str()).collect();
            return Err(Error::invalid(format!(
                "{} operands, and it takes {}: {}",
                operands.len(),
                names.len(),
                names.join(", ")
            )));
        }
        let mut sizes: BTreeMap<String, (Dim, &str)> = BTreeMap::new();
        for (tensor, (shape, dtype)) in self.inputs.iter().zip(operands) {
            let (name, want) = (tensor.name.as_str(), self.spec(tensor));
            if *dtype != want.dtype || shape.rank() != want.rank {
                return Err(Error::invalid(format!(
                    "{name} is {dtype}{shape}, must be {} of {} dimensions",
                    want.dtype, want.rank
                )));
            }
            for (expr, size) in tensor.shape.iter().zip(shape.dims()) {
                let Expr::Name(symbol) = expr else { continue };
                match sizes.get(symbol) {
                    Some((other, from)) if other != size => {
                        return Err(Error::invalid(format!(
                            "size {symbol} is {other} in {from} and {size} in {name}"
                        )));
                    }
                    _ => sizes.insert(symbol.clone(), (size.clone(), name)),
                };
            }
        }
        let symbols = self.symbols();
        let given = values.iter().map(|(name, value)| (*name, *value, true));
        let defaults = self.defaults.iter().map(|(name, value)| (name.as_str(), *value, false));
        for (name, value, by_call) in given.chain(defaults) {
            if !symbols.contains(&name) {
                continue;
            }
            if value.fract() != 0.0 || !(0.0..=MAX_WHOLE).contains(&value) {
                return Err(Error::invalid(format!("{name} = {value} is not a size")));
            }
            let value = Dim::new(value as i64);
            match sizes.get(name) {
                Some((size, from)) if by_call && *size != value => {
                    return Err(Error::invalid(format!(
                        "size {name} is {value} in the call and {size} in {from}"
                    )));
                }
                Some(_) => {}
                None => {
                    sizes.insert(name.into(), (value, "the call"));
                }
            }
        }
        Ok(sizes.into_iter().map(|(name, (size, _))| (name, size)).collect())
    }

    /// Checks that a tensor of this shape consists of complete elements of the shader's array.
    fn fits(&self, tensor: &Declared, shape: &Shape) -> Result<()> {
        if let Some(size) = shape.dims().iter().filter_map(Dim::as_const).find(|size| *size < 0) {
            let name = &tensor.name;
            return Err(Error::invalid(format!("{name} is {shape}, with the size {size}")));
        }
        let (_, words) = self.elements.get(&tensor.name).copied().unwrap_or((DType::F32, 1));
        match shape.elements().is_multiple_of(i64::from(words)) {
            true => Ok(()),
            false => Err(Error::invalid(format!(
                "{} is {shape}, which is not a whole number of elements of {words} words, as in {}",
                tensor.name, self.shader.file
            ))),
        }
    }

    fn grid(
        &self,
        group: [u32; 3],
        outputs: &[(Shape, DType)],
        size: &dyn Fn(&str) -> Result<Dim>,
    ) -> Result<[Dim; 3]> {
        let mut grid = [Dim::new(1), Dim::new(1), Dim::new(1)];
        match &self.launch {
            Launch::Groups(groups) => {
                for (axis, expr) in grid.iter_mut().zip(groups) {
                    *axis = expr.eval(size)?;
                }
            }
            Launch::Threads(threads) => {
                for ((axis, expr), group) in grid.iter_mut().zip(threads).zip(group) {
                    *axis = expr.eval(size)?.ceil_div(&Dim::from(group));
                }
                // Unspecified axes have one thread, so one workgroup.
            }
            Launch::Elements => {
                let first = self.outputs.first().zip(outputs.first());
                if let Some((tensor, (shape, _))) = first {
                    let words = self.elements.get(&tensor.name).map_or(1, |(_, words)| *words);
                    let threads = shape.elements().floor_div(&Dim::from(words));
                    grid[0] = threads.ceil_div(&Dim::from(group[0]));
                }
            }
        }
        match grid.iter().filter_map(Dim::as_const).find(|groups| *groups < 0) {
            None => Ok(grid),
            Some(groups) => Err(Error::invalid(format!("a launch of {groups} workgroups"))),
        }
    }

    fn params(
        &self,
        values: &[(&str, f64)],
        size: &dyn Fn(&str) -> Result<Dim>,
    ) -> Result<Vec<CustomWord>> {
        let mut words = vec![CustomWord::Bits(0); self.words as usize];
        for value in &self.fields {
            let word = match &value.size {
                Some(expr) => sized(value, expr.eval(size)?)?,
                None => {
                    let given = values.iter().find(|(name, _)| *name == value.name);
                    let given = given.map(|(_, number)| *number);
                    let number = given.or_else(|| self.default(&value.name));
                    let number = number.ok_or_else(|| self.no_number(&value.name))?;
                    let word = bits(number, value.dtype).ok_or_else(|| no_value(value, number))?;
                    CustomWord::Bits(word)
                }
            };
            if let Some(place) = words.get_mut(value.at as usize) {
                *place = word;
            }
        }
        Ok(words)
    }
}

impl Pack {
    fn no_number(&self, name: &str) -> Error {
        let line = self.shader.block.as_ref().map_or(0, |block| block.line);
        let (shader, manifest) = (&self.shader.file, &self.file);
        Error::invalid(format!(
            "{name} of the uniform block in {shader}:{line} has no value: a call gives it, or \
             `defaults` or `params` in {manifest}"
        ))
    }
}

fn no_value(value: &Value, number: impl std::fmt::Display) -> Error {
    let (name, dtype) = (&value.name, value.dtype);
    Error::invalid(format!("{name} = {number} is not a value of {dtype}"))
}

/// Converts a size to a word of the uniform block.
fn sized(value: &Value, dim: Dim) -> Result<CustomWord> {
    match (dim.as_const(), value.dtype) {
        (Some(number), dtype) => {
            let word = bits(number as f64, dtype).ok_or_else(|| no_value(value, number))?;
            Ok(CustomWord::Bits(word))
        }
        (None, DType::U32 | DType::I32) => Ok(CustomWord::Dim(dim)),
        (None, dtype) => Err(Error::invalid(format!(
            "{} is {dtype}, and the size {dim} changes from run to run: make it u32",
            value.name
        ))),
    }
}

impl Pack {
    /// Adds a call of this kernel to a graph; returns its results in the order of the pack's
    /// outputs. `values` gives, by name, the sizes that no operand determines and the numbers of
    /// the uniform block.
    ///
    /// # Errors
    /// Same as [`Pack::call`], and invalid if an operand is not a node of the graph.
    pub fn add_to(
        &self,
        graph: &mut Graph,
        inputs: &[NodeId],
        values: &[(&str, f64)],
    ) -> Result<Vec<NodeId>> {
        let missing = inputs.iter().find(|id| id.index() >= graph.nodes().len());
        if let Some(id) = missing {
            return Err(Error::invalid(format!(
                "graph {}: operand {id} does not exist",
                graph.name
            )));
        }
        let operands: Vec<(Shape, DType)> = (inputs.iter())
            .map(|id| (graph.node(*id).shape.clone(), graph.node(*id).dtype))
            .collect();
        let custom = self.call(&operands, values)?;
        (0..custom.outputs.len() as u32)
            .map(|output| {
                let op = Op::Custom(Box::new(Custom { output, ..custom.clone() }));
                let node = graph.add(op, inputs)?;
                Ok(graph.label(node, &self.name))
            })
            .collect()
    }
}
