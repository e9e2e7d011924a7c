//! The one binary of tests that need no module's insides.

mod shaders;
