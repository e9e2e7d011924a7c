//! Single launches, and sequences of launches as CUDA graphs.
//! Graphs are built without stream capture: nodes are added one by one, then replayed.

use std::ffi::c_void;
use std::ptr;
use std::sync::Arc;

use cudarc::driver::{result, sys};
use smallvec::SmallVec;

use super::gpu::Gpu;
use warploom_core::error::Result;

/// A launch with its buffer addresses.
#[derive(Clone)]
pub(super) struct Call {
    pub(super) function: sys::CUfunction,
    pub(super) block: [u32; 3],
    /// Address of each buffer argument.
    pub(super) pointers: SmallVec<[sys::CUdeviceptr; 8]>,
    /// Words of the array-length struct, which follows the pointers unless it is empty.
    pub(super) lengths: SmallVec<[u32; 8]>,
    pub(super) turn: Turn,
}

/// Behaviour of a kernel in overlapping launches (programmatic dependent launch).
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Turn {
    /// Whether the kernel itself waits for previous launches.
    pub(super) waits: bool,
    /// Whether it lets the next launch start only when all previous ones are complete.
    pub(super) allows_overlap: bool,
    /// Whether it waits only at its end.
    pub(super) overlaps_previous: bool,
}

impl Turn {
    /// Returns whether it may start before the previous launch is complete. A kernel that waits
    /// only at its end requires that the previous launch has waited for all earlier ones.
    fn may_overlap(self, before: Turn) -> bool {
        self.waits && (!self.overlaps_previous || before.allows_overlap)
    }
}

/// Minimum compute capability at which kernels can wait for previous launches.
pub(super) const WAITING_CAPABILITY: i32 = 90;
/// An edge to a kernel that waits by itself. The kernel starts when all workgroups of the previous
/// kernel have started or, if the previous kernel does not allow overlap, have completed.
const OVERLAPPING: sys::CUgraphEdgeData = sys::CUgraphEdgeData_st {
    from_port: sys::CU_GRAPH_KERNEL_NODE_PORT_PROGRAMMATIC as u8,
    to_port: 0,
    type_: sys::CUgraphDependencyType::CU_GRAPH_DEPENDENCY_TYPE_PROGRAMMATIC as u8,
    reserved: [0; 5],
};

// SAFETY: a handle of the driver, which locks for itself.
unsafe impl Send for Call {}

impl Call {
    /// Returns the address of each kernel argument.
    fn arguments(&self) -> SmallVec<[*mut c_void; 12]> {
        let pointers = self.pointers.iter().map(|pointer| ptr::from_ref(pointer).cast_mut().cast());
        let lengths = (!self.lengths.is_empty()).then(|| self.lengths.as_ptr().cast_mut().cast());
        pointers.chain(lengths).collect()
    }

    /// Enqueues the launch with this grid, which has no zero size.
    pub(super) fn launch(&self, gpu: &Gpu, grid: [u32; 3]) -> Result<()> {
        let mut arguments = self.arguments();
        let ([x, y, z], [bx, by, bz]) = (grid, self.block);
        let stream = gpu.stream;
        // SAFETY: the kernel takes these arguments, whose memory is live until it is done.
        let launched = unsafe {
            result::launch_kernel(self.function, (x, y, z), (bx, by, bz), 0, stream, &mut arguments)
        };
        gpu.check("a launch", launched)
    }

    /// Returns the parameters of its graph node, which point to the argument addresses in
    /// `arguments`.
    fn node(&self, grid: [u32; 3], arguments: &mut [*mut c_void]) -> sys::CUDA_KERNEL_NODE_PARAMS {
        // Empty launches are disabled, but a node must have a valid grid.
        let [x, y, z] = if grid.contains(&0) { [1; 3] } else { grid };
        sys::CUDA_KERNEL_NODE_PARAMS {
            func: self.function,
            gridDimX: x,
            gridDimY: y,
            gridDimZ: z,
            blockDimX: self.block[0],
            blockDimY: self.block[1],
            blockDimZ: self.block[2],
            sharedMemBytes: 0,
            kernelParams: arguments.as_mut_ptr(),
            extra: ptr::null_mut(),
            kern: ptr::null_mut(),
            ctx: ptr::null_mut(),
        }
    }
}

/// A sequence of launches that is enqueued as one unit.
pub(super) struct Graph {
    gpu: Arc<Gpu>,
    /// Whether launches overlap the end of previous ones. The dependency that a disabled launch
    /// passes on is unspecified, so `apart` is used if a launch is empty.
    overlaps: bool,
    /// A graph of the same launches without overlap; made when it is first needed.
    apart: Option<Box<Graph>>,
    graph: sys::CUgraph,
    exec: sys::CUgraphExec,
    nodes: Vec<Node>,
}

// SAFETY: handles of the driver; a graph is only used under the device's lock.
unsafe impl Send for Graph {}

/// A launch of a graph, with its last parameters.
struct Node {
    node: sys::CUgraphNode,
    grid: [u32; 3],
    pointers: SmallVec<[sys::CUdeviceptr; 8]>,
    enabled: bool,
}

impl Graph {
    /// Creates a graph of these calls with these grids, each launch after the previous one.
    pub(super) fn new(gpu: &Arc<Gpu>, calls: &[Call], grids: &[[u32; 3]]) -> Result<Graph> {
        let mut handle = ptr::null_mut();
        // SAFETY: makes a handle, which is destroyed when the value is dropped.
        gpu.check("a graph", unsafe { sys::cuGraphCreate(&mut handle, 0) }.result())?;
        let exec = ptr::null_mut();
        let nodes = Vec::with_capacity(calls.len());
        let overlaps = gpu.capability >= WAITING_CAPABILITY && !has_nothing(grids);
        let gpu_of = Arc::clone(gpu);
        let mut graph = Graph { gpu: gpu_of, overlaps, apart: None, graph: handle, exec, nodes };
        for (i, (call, grid)) in calls.iter().zip(grids).enumerate() {
            let mut arguments = call.arguments();
            let params = call.node(*grid, &mut arguments);
            let mut node = ptr::null_mut();
            // SAFETY: the driver copies the arguments.
            let added =
                unsafe { sys::cuGraphAddKernelNode_v2(&mut node, handle, ptr::null(), 0, &params) };
            gpu.check("a graph", added.result())?;
            if let Some(before) = graph.nodes.last().map(|before| before.node) {
                let may_overlap = call.turn.may_overlap(calls[i - 1].turn);
                let edge = (overlaps && may_overlap).then_some(OVERLAPPING);
                let edge = edge.as_ref().map_or(ptr::null(), ptr::from_ref);
                // SAFETY: two nodes of this graph, and one edge of the default kind or of that.
                let joined =
                    unsafe { sys::cuGraphAddDependencies_v2(handle, &before, &node, edge, 1) };
                gpu.check("a graph", joined.result())?;
            }
            let pointers = call.pointers.clone();
            graph.nodes.push(Node { node, grid: *grid, pointers, enabled: true });
        }
        // SAFETY: a graph that was made; no flags.
        let made = unsafe { sys::cuGraphInstantiateWithFlags(&mut graph.exec, handle, 0) };
        gpu.check("a graph", made.result())?;
        for (node, grid) in graph.nodes.iter_mut().zip(grids) {
            node.enable(gpu, graph.exec, !grid.contains(&0))?;
        }
        Ok(graph)
    }

    /// Updates the nodes that changed, and enqueues the graph.
    pub(super) fn launch(&mut self, calls: &[Call], grids: &[[u32; 3]]) -> Result<()> {
        let gpu = &self.gpu;
        if self.overlaps && has_nothing(grids) {
            let apart = match &mut self.apart {
                Some(apart) => apart,
                empty => empty.insert(Box::new(Graph::new(gpu, calls, grids)?)),
            };
            return apart.launch(calls, grids);
        }
        for ((node, call), grid) in self.nodes.iter_mut().zip(calls).zip(grids) {
            if node.grid == *grid && node.pointers == call.pointers {
                continue;
            }
            let mut arguments = call.arguments();
            let params = call.node(*grid, &mut arguments);
            // SAFETY: a node of the graph that this was made from; runs in flight keep what they
            // had.
            let set =
                unsafe { sys::cuGraphExecKernelNodeSetParams_v2(self.exec, node.node, &params) };
            gpu.check("a graph", set.result())?;
            node.enable(gpu, self.exec, !grid.contains(&0))?;
            node.grid = *grid;
            node.pointers.clone_from(&call.pointers);
        }
        // SAFETY: graph and stream live.
        let launched = unsafe { result::graph::launch(self.exec, gpu.stream) };
        gpu.check("launching a graph", launched)
    }
}

/// Returns whether one of these launches is empty.
fn has_nothing(grids: &[[u32; 3]]) -> bool {
    grids.iter().any(|grid| grid.contains(&0))
}

impl Node {
    fn enable(&mut self, gpu: &Gpu, exec: sys::CUgraphExec, enabled: bool) -> Result<()> {
        if self.enabled == enabled {
            return Ok(());
        }
        self.enabled = enabled;
        // SAFETY: a node of the graph that this was made from.
        let set = unsafe { sys::cuGraphNodeSetEnabled(exec, self.node, u32::from(enabled)) };
        gpu.check("a graph", set.result())
    }
}

impl Drop for Graph {
    fn drop(&mut self) {
        let Ok(_current) = self.gpu.enter() else { return };
        // SAFETY: made by `new`; the device drops it when no submit that uses it is in flight.
        unsafe {
            if !self.exec.is_null() {
                let _ = result::graph::exec_destroy(self.exec);
            }
            let _ = result::graph::destroy(self.graph);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Turn;

    #[test]
    fn a_wait_at_the_end_follows_a_launch_that_waited_for_all_others() {
        let waits = Turn { waits: true, ..Turn::default() };
        let beside = Turn { overlaps_previous: true, ..waits };
        let followed = Turn { allows_overlap: true, ..waits };
        assert!(beside.may_overlap(followed) && waits.may_overlap(followed));
        assert!(waits.may_overlap(waits) && waits.may_overlap(beside));
        assert!(!beside.may_overlap(waits) && !beside.may_overlap(beside));
        assert!(!Turn::default().may_overlap(followed));
    }
}
