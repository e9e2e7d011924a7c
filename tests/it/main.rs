//! The one integration test binary: fewer links, shared helpers.

#[cfg(feature = "webgpu")]
mod webgpu_device;
#[cfg(feature = "webgpu")]
mod webgpu_faults;
#[cfg(feature = "webgpu")]
mod webgpu_host;
