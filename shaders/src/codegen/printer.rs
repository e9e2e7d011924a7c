//! Prints the values of a fused expression: loads, operations and stores, for each slot.

use std::fmt::Write;

use super::ops::Body;
use super::{Buffer, address, buffers, line, stored, width};
use crate::{Addressing, FusedExpr, Operand, Schedule, Value};
use warploom_core::base::DType;

/// The text of an entry point under construction.
///
/// The entry point declares the variables that addresses use. In a schedule of elements, `i` is the
/// index of the thread's first element, and `c0`, `c1` and so on are its coordinates. In a schedule
/// of rows, `first` is the index of the row's first element, `x0_row` and so on are the addresses
/// of the row in each operand, and `col0`, `col1` and so on are the first columns of the thread's
/// slots: one variable for every `width` slots.
pub(super) struct Printer<'a> {
    pub(super) expr: &'a FusedExpr,
    pub(super) body: Body<'a>,
    pub(super) text: String,
    /// Number of words of workgroup memory.
    pub(super) scratch: u32,
    buffers: Vec<Buffer>,
    width: u32,
    rows: bool,
    /// For each value, whether each slot has its own copy.
    own: Vec<bool>,
}

impl<'a> Printer<'a> {
    pub(super) fn new(expr: &'a FusedExpr, body: Body<'a>) -> Printer<'a> {
        let rows = matches!(expr.schedule, Schedule::Rows { .. });
        let width = width(&expr.schedule);
        let mut own: Vec<bool> = Vec::new();
        for value in &expr.values {
            let mine = match *value {
                Value::Input(i) => match expr.inputs[i as usize].addressing {
                    Addressing::Flat => true,
                    // Without rows, four neighbours read one element of it.
                    Addressing::Strided => rows,
                    Addressing::Single | Addressing::Row => false,
                },
                Value::Index => true,
                Value::Reduce(..) => false,
                _ => value.operands().any(|operand| own[operand as usize]),
            };
            own.push(mine);
        }
        let buffers = buffers(expr);
        Printer { expr, body, text: String::new(), scratch: 0, buffers, width, rows, own }
    }

    /// Returns the text, the body with its declarations, and the words of workgroup memory.
    pub(super) fn finish(self) -> (String, Body<'a>, u32) {
        (self.text, self.body, self.scratch)
    }

    /// Returns whether each slot has its own copy of this value.
    pub(super) fn is_own(&self, value: u32) -> bool {
        self.own[value as usize]
    }

    /// Returns the name of the variable for a value and slot.
    pub(super) fn name(&self, value: u32, slot: u32) -> String {
        match self.own[value as usize] {
            true => format!("v{value}_{slot}"),
            false => format!("v{value}"),
        }
    }

    /// Prints the coordinates of `index` over the first `rank` dimensions, as `c0`, `c1`...
    pub(super) fn coordinates(&mut self, index: &str, rank: u32) {
        // Innermost first; the remaining outermost needs no remainder.
        let mut rest = index.to_string();
        for d in (1..rank).rev() {
            line!(self.text, "    let c{d} = {rest} % params.size{d};");
            line!(self.text, "    let rest{d} = {rest} / params.size{d};");
            rest = format!("rest{d}");
        }
        if rank > 0 {
            line!(self.text, "    let c0 = {rest};");
        }
    }

    /// Returns the address of an operand's element for a slot.
    fn address(&self, name: &str, operand: &Operand, slot: u32) -> String {
        if !self.rows || operand.addressing == Addressing::Single {
            return address(name, operand, self.expr.rank);
        }
        let at = format!("{name}_row + {}", self.column(slot));
        match operand.addressing {
            Addressing::Strided => format!("{at} * params.{name}_stride{}", self.expr.rank - 1),
            Addressing::Row => format!("{name}_row"),
            Addressing::Flat | Addressing::Single => at,
        }
    }

    fn column(&self, slot: u32) -> String {
        match (slot / self.width, slot % self.width) {
            (group, 0) => format!("col{group}"),
            (group, inside) => format!("(col{group} + {inside}u)"),
        }
    }

    /// Prints values, in order, for the given number of slots.
    pub(super) fn values(&mut self, values: &[u32], slots: u32, indent: &str) {
        for value in values {
            let slots = if self.is_own(*value) { slots } else { 1 };
            for slot in 0..slots {
                let text = self.value(*value, slot, indent);
                line!(self.text, "{indent}let {} = {text};", self.name(*value, slot));
            }
        }
    }

    fn value(&mut self, value: u32, slot: u32, indent: &str) -> String {
        match self.expr.values[value as usize] {
            Value::Input(i) => self.load(i, value, slot, indent),
            Value::Index if self.rows => format!("first + {}", self.column(slot)),
            Value::Index => match slot {
                0 => "i".into(),
                _ => format!("i + {slot}u"),
            },
            _ => {
                let (own, slot) = (&self.own, slot);
                let name = |operand: u32| match own[operand as usize] {
                    true => format!("v{operand}_{slot}"),
                    false => format!("v{operand}"),
                };
                self.body.text(value, name).unwrap_or_default()
            }
        }
    }

    /// Returns the expression for an element of input `i`; the first of four neighbours prints the
    /// load of all four.
    fn load(&mut self, i: u32, value: u32, slot: u32, indent: &str) -> String {
        let operand = &self.expr.inputs[i as usize];
        let buffer = &self.buffers[operand.binding as usize];
        let wide = self.width == 4 && operand.addressing == Addressing::Flat;
        let inside = slot % self.width;
        let vector = format!("w{value}_{}", slot / self.width);
        let at = self.address(&format!("x{i}"), operand, slot);
        if buffer.halves && !wide {
            let place = format!("h{value}_{slot}");
            line!(self.text, "{indent}let {place} = {at};");
            let word = self.place(buffer, &place);
            return format!("({word} >> (({place} & 1u) * 16u)) & 0xffffu");
        }
        if wide && inside == 0 {
            line!(self.text, "{indent}let {vector} = {}[({at}) >> 2u];", buffer.name);
        }
        let load = match (wide, buffer.wide) {
            _ if buffer.halves && inside.is_multiple_of(2) => {
                return format!("{vector}[{}] & 0xffffu", inside / 2);
            }
            _ if buffer.halves => return format!("{vector}[{}] >> 16u", inside / 2),
            (true, _) => format!("{vector}[{inside}]"),
            (false, true) => format!("{}[({at}) >> 2u][({at}) & 3u]", buffer.name),
            (false, false) => format!("{}[{at}]", buffer.name),
        };
        let load = match stored(operand.dtype) {
            stored if stored == buffer.element => load,
            stored => format!("bitcast<{stored}>({load})"),
        };
        if operand.dtype == DType::Bool { format!("{load} != 0u") } else { load }
    }

    /// Prints the store of `width` slots of an output, from `slot` on.
    pub(super) fn store(&mut self, output: usize, slot: u32, indent: &str) {
        let (name, operand) = (format!("y{output}"), self.expr.outputs[output].operand);
        let buffer = &self.buffers[(self.expr.reads() + operand.binding) as usize];
        if buffer.wide && operand.addressing == Addressing::Flat {
            let mut values: Vec<String> =
                (slot..slot + 4).map(|s| self.encoded(output, buffer.element, s)).collect();
            if buffer.halves {
                values = values
                    .chunks(2)
                    .map(|two| format!("{} | ({} << 16u)", two[0], two[1]))
                    .collect();
            }
            let at = self.address(&name, &operand, slot);
            let vector = format!("vec{}<{}>({})", values.len(), buffer.element, values.join(", "));
            line!(self.text, "{indent}{}[({at}) >> 2u] = {vector};", buffer.name);
            return;
        }
        for slot in slot..slot + self.width {
            let (at, value) =
                (self.address(&name, &operand, slot), self.encoded(output, buffer.element, slot));
            let line = self.assign(buffer, &at, &value, indent);
            self.text.push_str(&line);
        }
    }

    /// Prints the store of an output that has one value per row.
    pub(super) fn store_row(&mut self, output: usize, indent: &str) {
        let operand = self.expr.outputs[output].operand;
        let buffer = &self.buffers[(self.expr.reads() + operand.binding) as usize];
        let at = match operand.addressing {
            Addressing::Single => format!("params.y{output}_offset"),
            _ => format!("y{output}_row"),
        };
        let line = self.assign(buffer, &at, &self.encoded(output, buffer.element, 0), indent);
        self.text.push_str(&line);
    }

    /// Returns the line that stores one element.
    fn assign(&self, buffer: &Buffer, at: &str, value: &str, indent: &str) -> String {
        match buffer.atomic {
            true => half_assign(&buffer.name, at, value, indent),
            false => format!("{indent}{} = {value};\n", self.place(buffer, at)),
        }
    }

    /// Returns the expression for the element at an address, or for the word that contains it if
    /// elements have 16 bits.
    fn place(&self, buffer: &Buffer, at: &str) -> String {
        let name = &buffer.name;
        match (buffer.wide, buffer.halves) {
            (true, true) => format!("{name}[({at}) >> 2u][(({at}) >> 1u) & 1u]"),
            (true, false) => format!("{name}[({at}) >> 2u][({at}) & 3u]"),
            (false, true) => format!("{name}[({at}) >> 1u]"),
            (false, false) => format!("{name}[{at}]"),
        }
    }

    /// Returns the expression for an output's value in a slot, as the buffer's type `element`.
    fn encoded(&self, output: usize, element: &str, slot: u32) -> String {
        let output = &self.expr.outputs[output];
        let value = self.name(output.value, slot);
        let value = match output.operand.dtype {
            DType::Bool => format!("select(0u, 1u, {value})"),
            _ => value,
        };
        match stored(output.operand.dtype) {
            stored if stored == element => value,
            _ => format!("bitcast<{element}>({value})"),
        }
    }
}

/// Returns lines that store a 16-bit element. They atomically xor its half of the word with the
/// difference, so that a concurrent write of the other half is preserved.
pub(super) fn half_assign(buffer: &str, at: &str, value: &str, indent: &str) -> String {
    let word = format!("&{buffer}[at >> 1u]");
    format!(
        "{indent}{{\n{indent}    let at = {at};\n{indent}    let shift = (at & 1u) * 16u;\n\
         {indent}    let old = atomicLoad({word}) >> shift;\n\
         {indent}    atomicXor({word}, ((old ^ {value}) & 0xffffu) << shift);\n{indent}}}\n"
    )
}
