//! The panels of the window.

/// A panel of the window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PanelName {
    /// Conversations.
    Chat,
    /// The devices of the machine.
    Devices,
    /// The same prompt on several devices.
    Compare,
    /// The kernels of a token.
    Kernels,
    /// Kernel packs that are changed in place.
    Playground,
    /// Pictures that packs compute.
    Pictures,
    /// The server.
    Server,
    /// The settings.
    Settings,
}

impl PanelName {
    /// All panels, in the order of the window.
    pub const ALL: [PanelName; 8] = [
        PanelName::Chat,
        PanelName::Devices,
        PanelName::Compare,
        PanelName::Kernels,
        PanelName::Playground,
        PanelName::Pictures,
        PanelName::Server,
        PanelName::Settings,
    ];

    /// Returns its name in scripts.
    pub fn id(self) -> &'static str {
        match self {
            PanelName::Chat => "chat",
            PanelName::Devices => "devices",
            PanelName::Compare => "compare",
            PanelName::Kernels => "kernels",
            PanelName::Playground => "playground",
            PanelName::Pictures => "pictures",
            PanelName::Server => "server",
            PanelName::Settings => "settings",
        }
    }

    /// Returns its name in the window.
    pub fn title(self) -> &'static str {
        match self {
            PanelName::Chat => "Chat",
            PanelName::Devices => "Devices",
            PanelName::Compare => "Compare",
            PanelName::Kernels => "Kernels",
            PanelName::Playground => "Playground",
            PanelName::Pictures => "Pictures",
            PanelName::Server => "Server",
            PanelName::Settings => "Settings",
        }
    }
}
