//! Runs a workgroup: each invocation in turn until it must wait, and all of them again once none
//! can continue.

use super::bytecode::{BuiltIn, Code};
use super::fault::{FaultKind, Trap};
use super::machine::{Machine, Stop};
use super::shadow::Now;
use super::subgroup;

/// A suspended invocation.
#[derive(Clone, Copy, Debug)]
struct Lane {
    /// The next instruction.
    at: u32,
    /// The reason why it stopped; `None` while it can run.
    stop: Option<Stop>,
    /// Remaining steps.
    steps: u64,
}

/// Options for running workgroups.
#[derive(Clone, Copy, Debug)]
pub(super) struct Rules {
    pub(super) workgroups: [u32; 3],
    pub(super) subgroup_size: u32,
    pub(super) max_steps: u64,
    /// Whether it is a fault if an invocation skips a barrier or a subgroup operation.
    pub(super) uniform: bool,
}

/// Runs workgroups one after another.
pub(super) struct Workgroup<'a> {
    machine: Machine<'a>,
    rules: Rules,
    lanes: Vec<Lane>,
    /// Registers of all invocations.
    registers: Vec<u32>,
}

impl<'a> Workgroup<'a> {
    pub(super) fn new(machine: Machine<'a>, rules: Rules) -> Workgroup<'a> {
        let [x, y, z] = machine.code.workgroup_size;
        let count = (x * y * z) as usize;
        let lane = Lane { at: 0, stop: None, steps: rules.max_steps };
        let registers = machine.code.registers.repeat(count);
        Workgroup { machine, rules, lanes: vec![lane; count], registers }
    }

    /// Runs the workgroup with this id and index in the dispatch; returns the number of steps.
    pub(super) fn run(&mut self, id: [u32; 3], number: u32) -> Result<u64, Box<Trap>> {
        self.begin(id);
        self.machine.now = Now { group: number, ..Now::default() };
        loop {
            self.run_ready()?;
            if self.meet_in_subgroups()? {
                continue;
            }
            if !self.meet_at_barrier()? {
                break;
            }
        }
        Ok(self.lanes.iter().map(|lane| self.rules.max_steps - lane.steps).sum())
    }

    fn begin(&mut self, id: [u32; 3]) {
        let code = self.machine.code;
        let size = code.registers.len();
        for (local, lane) in self.lanes.iter_mut().enumerate() {
            let registers = &mut self.registers[local * size..(local + 1) * size];
            registers.copy_from_slice(&code.registers);
            set_builtins(code, registers, &self.rules, id, local as u32);
            *lane = Lane { at: 0, stop: None, steps: self.rules.max_steps };
        }
        self.machine.clear_workgroup();
    }

    fn run_ready(&mut self) -> Result<(), Box<Trap>> {
        let size = self.machine.code.registers.len();
        for (local, lane) in self.lanes.iter_mut().enumerate() {
            if lane.stop.is_none() {
                self.machine.now.local = local as u32;
                let registers = &mut self.registers[local * size..(local + 1) * size];
                let (stop, at) = self.machine.resume(registers, lane.at, &mut lane.steps)?;
                (lane.stop, lane.at) = (Some(stop), at);
            }
        }
        Ok(())
    }

    /// Performs one pending operation of each subgroup, and returns whether there was one. If the
    /// invocations of a subgroup wait for different operations, those at the lowest instruction go
    /// first.
    fn meet_in_subgroups(&mut self) -> Result<bool, Box<Trap>> {
        let size = self.machine.code.registers.len();
        let width = self.rules.subgroup_size as usize;
        let mut met = false;
        for (number, lanes) in self.lanes.chunks_mut(width).enumerate() {
            let waits = |lane: &Lane| matches!(lane.stop, Some(Stop::Subgroup(_)));
            let Some(at) = lanes.iter().filter(|lane| waits(lane)).map(|lane| lane.at).min() else {
                continue;
            };
            let here: Vec<usize> =
                (0..lanes.len()).filter(|i| waits(&lanes[*i]) && lanes[*i].at == at).collect();
            let ended = lanes.iter().filter(|lane| lane.stop == Some(Stop::End)).count();
            if self.rules.uniform && here.len() + ended < lanes.len() {
                let detail = format!(
                    "{} of {} invocations of a subgroup came to its operation",
                    here.len(),
                    lanes.len() - ended
                );
                return Err(not_uniform(at, number * width + here[0], detail));
            }
            let Some(Stop::Subgroup(table)) = lanes[here[0]].stop else { continue };
            let first = number * width * size;
            let registers = &mut self.registers[first..first + lanes.len() * size];
            let group = &self.machine.code.groups[table as usize];
            subgroup::perform(group, &here, registers, (size, width));
            here.iter().for_each(|lane| lanes[*lane].stop = None);
            met = true;
        }
        Ok(met)
    }

    /// Releases all invocations from a barrier; returns false if all have ended.
    fn meet_at_barrier(&mut self) -> Result<bool, Box<Trap>> {
        let lanes = self.lanes.iter().enumerate();
        let mut waiting = lanes.filter(|(_, lane)| lane.stop != Some(Stop::End));
        let Some((first, Lane { at, stop, .. })) = waiting.next() else { return Ok(false) };
        let (at, stop) = (*at, *stop);
        let others = 1 + waiting.clone().filter(|(_, lane)| lane.at == at).count();
        let all = 1 + waiting.count();
        if others < all || (self.rules.uniform && all < self.lanes.len()) {
            let detail =
                format!("{others} of {} invocations came to this barrier", self.lanes.len());
            return Err(not_uniform(at, first, detail));
        }
        if let Some(Stop::Barrier { storage, workgroup }) = stop {
            self.machine.now.storage_phase += u32::from(storage);
            self.machine.now.workgroup_phase += u32::from(workgroup);
        }
        for lane in self.lanes.iter_mut().filter(|lane| lane.stop != Some(Stop::End)) {
            lane.stop = None;
        }
        Ok(true)
    }
}

fn not_uniform(at: u32, local: usize, detail: String) -> Box<Trap> {
    let (kind, op, local) = (FaultKind::NonUniformBarrier, at - 1, local as u32);
    Box::new(Trap { kind, op, local, other: None, region: None, detail })
}

/// Splits the index `x + y * sizes.x + z * sizes.x * sizes.y` into x, y and z.
pub(super) fn unfold(index: u64, sizes: [u32; 3]) -> [u32; 3] {
    let (x, y) = (u64::from(sizes[0].max(1)), u64::from(sizes[1].max(1)));
    [(index % x) as u32, (index / x % y) as u32, (index / x / y) as u32]
}

fn set_builtins(code: &Code, r: &mut [u32], rules: &Rules, id: [u32; 3], local: u32) {
    let sizes = code.workgroup_size;
    let width = rules.subgroup_size;
    let local_id = unfold(u64::from(local), sizes);
    for (builtin, slot) in &code.builtins {
        let global = |i: usize| id[i].wrapping_mul(sizes[i]).wrapping_add(local_id[i]);
        let value = match builtin {
            BuiltIn::GlobalId => std::array::from_fn(global),
            BuiltIn::LocalId => local_id,
            BuiltIn::WorkgroupId => id,
            BuiltIn::Workgroups => rules.workgroups,
            BuiltIn::WorkgroupSize => sizes,
            BuiltIn::LocalIndex => [local; 3],
            BuiltIn::Subgroups => [sizes.iter().product::<u32>().div_ceil(width); 3],
            BuiltIn::SubgroupId => [local / width; 3],
            BuiltIn::SubgroupSize => [width; 3],
            BuiltIn::SubgroupInvocation => [local % width; 3],
        };
        let of_three = matches!(
            builtin,
            BuiltIn::GlobalId
                | BuiltIn::LocalId
                | BuiltIn::WorkgroupId
                | BuiltIn::Workgroups
                | BuiltIn::WorkgroupSize
        );
        let n = if of_three { 3 } else { 1 };
        let slot = *slot as usize;
        r[slot..slot + n].copy_from_slice(&value[..n]);
    }
}
