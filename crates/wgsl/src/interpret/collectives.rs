//! Compiles statements that involve several invocations: barriers, atomic operations and subgroup
//! operations.

use naga::{AtomicFunction, Barrier, CollectiveOperation, GatherMode, ScalarKind, Statement};
use naga::{SubgroupOperation, TypeInner};

use super::body::Body;
use super::bytecode::{Atomic, Fold, Group, Grouped, NONE, Op, Root};
use super::layout::{refused, scalar};
use super::number::Binary;
use warploom_core::error::Result;

impl<'m> Body<'_, 'm> {
    pub(super) fn together(&mut self, statement: &'m Statement) -> Result<()> {
        match *statement {
            Statement::ControlBarrier(barrier) if barrier == Barrier::SUB_GROUP => {
                self.group(Group {
                    what: Grouped::Barrier,
                    to: NONE,
                    from: NONE,
                    n: 0,
                    half: false,
                });
            }
            Statement::ControlBarrier(barrier) => {
                let storage = barrier.contains(Barrier::STORAGE);
                let workgroup = barrier.contains(Barrier::WORK_GROUP);
                self.c.push(Op::Barrier { storage, workgroup });
            }
            Statement::WorkGroupUniformLoad { pointer, result } => {
                let barrier = Op::Barrier { storage: false, workgroup: true };
                self.c.push(barrier);
                let to = self.load(pointer)?;
                self.slots[result.index()] = to;
                self.c.push(barrier);
            }
            Statement::Atomic { pointer, fun, value, result } => {
                let place = self.place(pointer)?;
                let Some(number) = scalar(&place.inner).filter(|scalar| scalar.width == 4) else {
                    return Err(refused("an atomic of this type"));
                };
                let value = self.value(value)?;
                let compare = match fun {
                    AtomicFunction::Exchange { compare: Some(compare) } => self.value(compare)?,
                    _ => NONE,
                };
                let to = match result {
                    Some(result) => self.result_of(result)?,
                    None => NONE,
                };
                let at = self.address(&place)?;
                let Root::Region(region) = place.root else {
                    return Err(refused("an atomic that only one invocation can access"));
                };
                self.c.code.atomics.push(Atomic { fun, compare, kind: number.kind });
                let fun = self.c.code.atomics.len() as u32 - 1;
                self.c.push(Op::Atomic { to, region, at, value, fun });
            }
            Statement::SubgroupBallot { result, predicate } => {
                let from = match predicate {
                    Some(predicate) => self.value(predicate)?,
                    None => NONE,
                };
                let to = self.result_of(result)?;
                self.group(Group { what: Grouped::Ballot, to, from, n: 4, half: false });
            }
            Statement::SubgroupCollectiveOperation { op, collective_op, argument, result } => {
                let inner = self.inner(argument);
                let what = Grouped::Fold {
                    op: fold(op, inner)?,
                    own: collective_op != CollectiveOperation::ExclusiveScan,
                    higher: collective_op == CollectiveOperation::Reduce,
                };
                self.of_group(what, argument, result)?;
            }
            Statement::SubgroupGather { mode, argument, result } => {
                let what = match mode {
                    GatherMode::BroadcastFirst => Grouped::First,
                    GatherMode::Broadcast(lane) => Grouped::Broadcast(self.value(lane)?),
                    GatherMode::Shuffle(lane) => Grouped::Shuffle(self.value(lane)?),
                    GatherMode::ShuffleDown(by) => Grouped::Down(self.value(by)?),
                    GatherMode::ShuffleUp(by) => Grouped::Up(self.value(by)?),
                    GatherMode::ShuffleXor(by) => Grouped::Xor(self.value(by)?),
                    GatherMode::QuadBroadcast(lane) => Grouped::QuadBroadcast(self.value(lane)?),
                    GatherMode::QuadSwap(direction) => Grouped::QuadSwap(direction as u32 + 1),
                };
                self.of_group(what, argument, result)?;
            }
            Statement::MemoryBarrier(_) => return Err(refused("a memory-only barrier")),
            Statement::ImageStore { .. } | Statement::ImageAtomic { .. } => {
                return Err(refused("textures"));
            }
            Statement::CooperativeStore { target, ref data } => {
                self.cooperative_store(target, data)?;
            }
            _ => return Err(refused("statements of other stages than compute")),
        }
        Ok(())
    }

    fn of_group(
        &mut self,
        what: Grouped,
        argument: naga::Handle<naga::Expression>,
        result: naga::Handle<naga::Expression>,
    ) -> Result<()> {
        let inner = self.inner(argument);
        let (from, n) = (self.value(argument)?, self.size(inner)?);
        let half = scalar(inner) == Some(naga::Scalar::F16);
        let to = self.result_of(result)?;
        self.group(Group { what, to, from, n, half });
        Ok(())
    }

    pub(super) fn group(&mut self, group: Group) {
        self.c.code.groups.push(group);
        let table = self.c.code.groups.len() as u32 - 1;
        self.c.push(Op::Subgroup { table });
    }
}

fn fold(op: SubgroupOperation, inner: &TypeInner) -> Result<Fold> {
    use SubgroupOperation as Op;
    let Some(scalar) = scalar(inner) else {
        return Err(refused("a subgroup operation of a struct"));
    };
    let kind = scalar.kind;
    let pick = |float: (Binary, f32), signed: (Binary, i32), unsigned: (Binary, u32)| match kind {
        ScalarKind::Float => Fold { op: float.0, identity: float.1.to_bits() },
        ScalarKind::Sint => Fold { op: signed.0, identity: signed.1 as u32 },
        _ => Fold { op: unsigned.0, identity: unsigned.1 },
    };
    let same = |op, identity| Fold { op, identity };
    Ok(match op {
        Op::All => same(Binary::And, 1),
        Op::Any => same(Binary::Or, 0),
        Op::Add => pick((Binary::AddF32, 0.0), (Binary::Add, 0), (Binary::Add, 0)),
        Op::Mul => pick((Binary::MulF32, 1.0), (Binary::Mul, 1), (Binary::Mul, 1)),
        Op::Min => pick(
            (Binary::MinF32, f32::INFINITY),
            (Binary::MinI32, i32::MAX),
            (Binary::MinU32, u32::MAX),
        ),
        Op::Max => pick(
            (Binary::MaxF32, f32::NEG_INFINITY),
            (Binary::MaxI32, i32::MIN),
            (Binary::MaxU32, 0),
        ),
        Op::And => same(Binary::And, u32::MAX),
        Op::Or => same(Binary::Or, 0),
        Op::Xor => same(Binary::Xor, 0),
    })
}
