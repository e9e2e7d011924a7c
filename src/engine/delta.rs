//! The gated delta rule: the recurrence of linear attention layers.

use super::lowering::{Call, Lowering, View};
use super::{Cost, Engine, EngineId, OTHER_OPERATION, Query, ReductionOrder};
use crate::base::Dim;
use crate::error::{Error, Result};
use crate::ir::Op;
use crate::kernel::AssetSpec;

/// Threads of a workgroup.
const THREADS: u64 = 64;
/// Elements of a column of the state that a thread keeps in registers, if several may share it.
const OWN: u64 = 32;
/// Maximum number of such elements.
const MOST_OWN: u64 = 128;

/// Engine for the gated delta rule.
pub(super) struct DeltaRule {
    id: EngineId,
}

impl DeltaRule {
    pub(super) fn new() -> DeltaRule {
        DeltaRule { id: EngineId::new("catalogue.delta_rule") }
    }
}

/// Returns the number of threads that share a column of `dk` elements.
fn lanes(dk: u64) -> u64 {
    let whole = |lanes: &u64| dk.is_multiple_of(*lanes) && (*lanes == 1 || dk / lanes >= OWN / 4);
    let mut able = [1, 2, 4, 8, 16].into_iter().filter(whole);
    let most = able.clone().next_back();
    able.find(|lanes| dk / lanes <= OWN).or(most).unwrap_or(1)
}

impl Engine for DeltaRule {
    fn id(&self) -> &EngineId {
        &self.id
    }

    fn applies(&self, query: &Query) -> Result<(), String> {
        let (Op::DeltaRule, [q, ..]) = (query.op, query.operands) else {
            return Err(OTHER_OPERATION.into());
        };
        let Some(dk) = q.shape[3].as_const().and_then(|dk| u64::try_from(dk).ok()) else {
            return Err("the size of a key varies".into());
        };
        if dk == 0 {
            return Err("keys have no elements".into());
        }
        match dk / lanes(dk) > MOST_OWN && query.is_wgsl() {
            true => Err(format!(
                "keys of {dk} elements do not fit the registers of {} threads",
                lanes(dk)
            )),
            false => Ok(()),
        }
    }

    fn order(&self, _query: &Query) -> Result<ReductionOrder, String> {
        Ok(ReductionOrder::new(0, "token by token"))
    }

    fn cost(&self, query: &Query) -> Cost {
        let [_, _, v, .., state] = query.operands else { return Cost::default() };
        let size = |dim: &Dim| query.upper(dim).unwrap_or(1) as f64;
        let flops = 7.0 * size(&state.shape.elements()) * size(&v.shape[1]);
        // Tokens wait for each other, and heads are few.
        let efficiency = if query.is_wgsl() { 0.05 } else { 0.3 };
        Cost { bytes: query.total_bytes(), flops, dispatches: 1.0, efficiency }
    }

    fn lower(&self, query: &Query, out: &mut Lowering) -> Result<()> {
        let mut operands: Vec<View> = Vec::with_capacity(query.operands.len());
        for operand in query.operands {
            operands.push(out.contiguous(operand)?);
        }
        let [q, k, v, decay, beta, state] = &operands[..] else {
            return Err(Error::invalid(format!("{}: needs six operands", query.label)));
        };
        let (heads, dv) = (&state.shape[1], &state.shape[3]);
        let dk = query.upper(&q.shape[3])?;
        let spec = AssetSpec::new("delta_rule");
        let spec = match query.is_wgsl() {
            true => spec.constant("DK", dk as u32).constant("LANES", lanes(dk) as u32),
            false => spec,
        };
        let [gy, gz, _] = out.fold(q.shape[0].clone() * heads.clone());
        let mut call = Call::new(spec)
            .dim("sequences", &q.shape[0])?
            .dim("tokens", &q.shape[1])?
            .dim("key_heads", &q.shape[2])?
            .dim("heads", heads)?
            .dim("dk", &q.shape[3])?
            .dim("dv", dv)?
            .dim("y_offset", &query.output.layout.offset)?;
        for (name, operand) in [
            ("q_offset", q),
            ("k_offset", k),
            ("v_offset", v),
            ("decay_offset", decay),
            ("beta_offset", beta),
            ("state_offset", state),
        ] {
            call = call.dim(name, &operand.layout.offset)?.bind(operand.tensor);
        }
        let columns = Dim::from(THREADS / lanes(dk));
        out.call(call.bind(query.output.tensor).grid([dv.ceil_div(&columns), gy, gz]))
    }
}

#[cfg(test)]
mod tests {
    use super::lanes;

    #[test]
    fn few_threads_share_a_column() {
        let cases =
            [(1, 1), (3, 1), (16, 1), (32, 1), (64, 2), (128, 4), (256, 8), (100, 4), (33, 1)];
        for (dk, want) in cases {
            assert_eq!(lanes(dk), want, "{dk}");
        }
    }
}
