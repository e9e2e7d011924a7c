//! The desktop program of warploom: one window in which people talk to models, look at devices and
//! kernels, change kernels, and watch them compute.
//!
//! The thread of the window never waits. `worker` is the thread that owns the model; `engine` is
//! what it does. They exchange commands and events, which are plain data. `app` gives events to the
//! panels and draws them; `host` is what panels use of it. `script` drives the window without a
//! person.
//!
//! `window` opens the device that draws. Pictures compute on the same device, so that they are
//! drawn from the memory in which they were computed. Models have devices of their own: the prompt
//! of a large model is one long submit, which would stop the window, and a device can be taken away
//! from a model in the middle of an answer without taking the window with it.

pub mod app;
pub mod args;
mod bar;
pub mod chat;
pub mod compare;
pub mod devices;
#[cfg(feature = "system")]
mod dialog;
#[cfg(not(feature = "system"))]
#[path = "dialog_none.rs"]
mod dialog;
mod drive;
pub mod engine;
mod events;
pub mod format;
pub mod frames;
pub mod gallery;
pub mod history;
pub mod host;
pub mod hub;
pub mod kernels;
pub mod look;
pub mod models;
pub mod notice;
pub mod offscreen;
pub mod packs;
pub mod panel;
pub mod playground;
pub mod prefs;
pub mod script;
pub mod serve;
pub mod settings;
pub mod window;
pub mod worker;
