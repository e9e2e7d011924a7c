// Wraps WebGPU before the worker's own modules use it.
const devices = [];
let refusing = false;

const { requestDevice } = GPUAdapter.prototype;
GPUAdapter.prototype.requestDevice = async function (...options) {
  const device = await requestDevice.apply(this, options);
  devices.push(device);
  return device;
};

// A full memory is an error of the device, later than the call.
const { createBuffer } = GPUDevice.prototype;
GPUDevice.prototype.createBuffer = function (descriptor) {
  if (refusing && descriptor.size > 65536) {
    const error = new GPUOutOfMemoryError(`${descriptor.size} bytes were refused`);
    queueMicrotask(() =>
      this.dispatchEvent(new GPUUncapturedErrorEvent("uncapturederror", { error })));
  }
  return createBuffer.call(this, descriptor);
};

const channel = new BroadcastChannel("faults");
channel.onmessage = ({ data }) => {
  if (data === "lose") devices.splice(0).forEach((device) => device.destroy());
  else refusing = data === "refuse";
  channel.postMessage("done");
};
