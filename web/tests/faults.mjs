// A worker of the package in which a test loses devices and refuses memory, by messages on the
// channel "faults": "lose" destroys every device, "refuse" lets every larger buffer fail as if the
// GPU's memory were full, until "allow".
import "./faults-hook.mjs";
import "/package/worker.js";
