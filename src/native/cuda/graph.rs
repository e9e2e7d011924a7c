//! Stretches of launches as CUDA graphs, and single launches.

use std::ffi::c_void;
use std::ptr;
use std::sync::Arc;

use cudarc::driver::{result, sys};
use smallvec::SmallVec;

use super::gpu::Gpu;
use crate::error::Result;

/// A launch with the addresses that it passes.
#[derive(Clone)]
pub(super) struct Call {
    pub(super) function: sys::CUfunction,
    pub(super) block: [u32; 3],
    /// Where each buffer begins.
    pub(super) pointers: SmallVec<[sys::CUdeviceptr; 8]>,
    /// The struct behind the pointers; none where it is empty.
    pub(super) lengths: SmallVec<[u32; 8]>,
}

// SAFETY: a handle of the driver, which locks for itself.
unsafe impl Send for Call {}

impl Call {
    /// Where each argument of the kernel lies.
    fn arguments(&self) -> SmallVec<[*mut c_void; 12]> {
        let pointers = self.pointers.iter().map(|pointer| ptr::from_ref(pointer).cast_mut().cast());
        let lengths = (!self.lengths.is_empty()).then(|| self.lengths.as_ptr().cast_mut().cast());
        pointers.chain(lengths).collect()
    }

    /// Enqueues it over this grid, none of whose sizes is zero.
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

    /// Its node of a graph; the arguments are where `arguments` says.
    fn node(&self, grid: [u32; 3], arguments: &mut [*mut c_void]) -> sys::CUDA_KERNEL_NODE_PARAMS {
        // Launches of nothing are switched off; a node must have a grid all the same.
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

/// Launches one after another, as one thing to enqueue.
pub(super) struct Graph {
    gpu: Arc<Gpu>,
    graph: sys::CUgraph,
    exec: sys::CUgraphExec,
    nodes: Vec<Node>,
}

// SAFETY: handles of the driver; a graph is used by who holds the device's lock.
unsafe impl Send for Graph {}

/// A launch of a graph, and with what it was set last.
struct Node {
    node: sys::CUgraphNode,
    grid: [u32; 3],
    pointers: SmallVec<[sys::CUdeviceptr; 8]>,
    enabled: bool,
}

impl Graph {
    /// A graph of these calls over these grids, each after the one before.
    pub(super) fn new(gpu: &Arc<Gpu>, calls: &[Call], grids: &[[u32; 3]]) -> Result<Graph> {
        let mut handle = ptr::null_mut();
        // SAFETY: makes a handle, which is destroyed when the value is dropped.
        gpu.check("a graph", unsafe { sys::cuGraphCreate(&mut handle, 0) }.result())?;
        let exec = ptr::null_mut();
        let nodes = Vec::with_capacity(calls.len());
        let mut graph = Graph { gpu: Arc::clone(gpu), graph: handle, exec, nodes };
        for (call, grid) in calls.iter().zip(grids) {
            let mut arguments = call.arguments();
            let params = call.node(*grid, &mut arguments);
            let before = graph.nodes.last().map(|node| node.node);
            let (list, count) =
                (before.as_ref().map_or(ptr::null(), ptr::from_ref), before.iter().len());
            let mut node = ptr::null_mut();
            // SAFETY: the driver copies the arguments; the node before is of this graph.
            let added =
                unsafe { sys::cuGraphAddKernelNode_v2(&mut node, handle, list, count, &params) };
            gpu.check("a graph", added.result())?;
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

    /// Sets what is not as it was, and enqueues all of it.
    pub(super) fn launch(&mut self, calls: &[Call], grids: &[[u32; 3]]) -> Result<()> {
        let gpu = &self.gpu;
        for ((node, call), grid) in self.nodes.iter_mut().zip(calls).zip(grids) {
            if node.grid == *grid && node.pointers == call.pointers {
                continue;
            }
            let mut arguments = call.arguments();
            let params = call.node(*grid, &mut arguments);
            // SAFETY: a node of the graph that this was made from; runs in flight keep what they had.
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
