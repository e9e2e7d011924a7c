//! Colours and sizes. They are those of the browser page (`web/page/style.css`).

use eframe::egui::{
    self, Color32, Context, CornerRadius, FontFamily, FontId, Shadow, Stroke, TextStyle, Theme, Ui,
    Visuals, style::WidgetVisuals,
};

/// The colours of a theme, under the names of the page's style sheet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Palette {
    /// The background of the window.
    pub ground: Color32,
    /// The background of cards and of the message field.
    pub raised: Color32,
    /// The background of secondary buttons.
    pub sunken: Color32,
    /// Lines and borders.
    pub line: Color32,
    /// Text.
    pub text: Color32,
    /// Secondary text.
    pub faint: Color32,
    /// Main buttons, links and selections.
    pub accent: Color32,
    /// Main buttons under the pointer.
    pub accent_strong: Color32,
    /// Text on main buttons.
    pub on_accent: Color32,
    /// The background of the user's messages.
    pub user: Color32,
    /// Errors.
    pub bad: Color32,
    /// The background of errors.
    pub bad_ground: Color32,
    /// Good news.
    pub good: Color32,
}

const fn rgb(hex: u32) -> Color32 {
    Color32::from_rgb((hex >> 16) as u8, (hex >> 8) as u8, hex as u8)
}

const LIGHT: Palette = Palette {
    ground: rgb(0xfb_fa_f8),
    raised: rgb(0xff_ff_ff),
    sunken: rgb(0xf0_ee_ea),
    line: rgb(0xdc_d8_d1),
    text: rgb(0x1c_1b_1a),
    faint: rgb(0x5f_5b_55),
    accent: rgb(0x3d_3a_f0),
    accent_strong: rgb(0x2d_2a_d0),
    on_accent: rgb(0xff_ff_ff),
    user: rgb(0xe9_e8_fd),
    bad: rgb(0xa3_14_1f),
    bad_ground: rgb(0xfd_ec_ec),
    good: rgb(0x14_68_3a),
};

const DARK: Palette = Palette {
    ground: rgb(0x16_17_1a),
    raised: rgb(0x1f_21_25),
    sunken: rgb(0x26_28_2d),
    line: rgb(0x38_3b_42),
    text: rgb(0xec_eb_e8),
    faint: rgb(0xa8_a6_a1),
    accent: rgb(0x8f_8d_ff),
    accent_strong: rgb(0xa9_a8_ff),
    on_accent: rgb(0x14_14_1f),
    user: rgb(0x2c_2d_4d),
    bad: rgb(0xff_9a_9a),
    bad_ground: rgb(0x3a_20_22),
    good: rgb(0x7f_d6_a2),
};

/// Returns the colours of the theme that a part of the window has.
pub fn palette(ui: &Ui) -> &'static Palette {
    if ui.visuals().dark_mode { &DARK } else { &LIGHT }
}

/// Distinct colours for the engines of a timeline, readable on both backgrounds.
pub const SERIES: [Color32; 8] = [
    rgb(0x6a_68_f5),
    rgb(0x1f_9e_89),
    rgb(0xe0_7b_39),
    rgb(0xc9_4f_9c),
    rgb(0x4f_9b_d9),
    rgb(0xb5_9a_1b),
    rgb(0x8b_5f_bf),
    rgb(0x7d_8a_97),
];

/// Gives a window its colours, fonts and sizes.
pub fn install(ctx: &Context) {
    for (theme, palette) in [(Theme::Light, &LIGHT), (Theme::Dark, &DARK)] {
        ctx.style_mut_of(theme, |style| {
            style.visuals = visuals(palette, theme);
            let sizes = [
                (TextStyle::Small, 12.0, FontFamily::Proportional),
                (TextStyle::Body, 15.0, FontFamily::Proportional),
                (TextStyle::Button, 14.5, FontFamily::Proportional),
                (TextStyle::Heading, 21.0, FontFamily::Proportional),
                (TextStyle::Monospace, 13.0, FontFamily::Monospace),
            ];
            style.text_styles = sizes
                .into_iter()
                .map(|(name, size, family)| (name, FontId::new(size, family)))
                .collect();
            style.spacing.item_spacing = egui::vec2(8.0, 7.0);
            style.spacing.button_padding = egui::vec2(11.0, 6.0);
            style.spacing.interact_size = egui::vec2(44.0, 30.0);
            style.spacing.menu_margin = egui::Margin::same(8);
            style.spacing.scroll.floating = true;
            style.url_in_tooltip = true;
        });
    }
}

fn visuals(palette: &Palette, theme: Theme) -> Visuals {
    let mut visuals = if theme == Theme::Dark { Visuals::dark() } else { Visuals::light() };
    let round = CornerRadius::same(9);
    let widget = |fill, border, text| WidgetVisuals {
        bg_fill: fill,
        weak_bg_fill: fill,
        bg_stroke: border,
        corner_radius: round,
        fg_stroke: Stroke::new(1.0, text),
        expansion: 0.0,
    };
    let (none, line) = (Stroke::NONE, Stroke::new(1.0, palette.line));
    visuals.widgets.noninteractive = widget(palette.ground, line, palette.text);
    visuals.widgets.inactive = widget(palette.sunken, none, palette.text);
    visuals.widgets.hovered = widget(palette.line, none, palette.text);
    visuals.widgets.active = widget(palette.line, Stroke::new(1.5, palette.accent), palette.text);
    visuals.widgets.open = widget(palette.sunken, line, palette.text);
    visuals.selection.bg_fill = palette.user;
    visuals.selection.stroke = Stroke::new(1.0, palette.accent_strong);
    visuals.hyperlink_color = palette.accent;
    visuals.weak_text_color = Some(palette.faint);
    visuals.faint_bg_color = palette.sunken;
    visuals.extreme_bg_color = palette.raised;
    // On cards and in dialogs too.
    visuals.text_edit_bg_color = Some(palette.sunken);
    visuals.code_bg_color = palette.sunken;
    visuals.warn_fg_color = palette.bad;
    visuals.error_fg_color = palette.bad;
    visuals.panel_fill = palette.ground;
    visuals.window_fill = palette.raised;
    visuals.window_stroke = line;
    visuals.window_corner_radius = CornerRadius::same(14);
    visuals.menu_corner_radius = CornerRadius::same(10);
    let alpha = if theme == Theme::Dark { 110 } else { 28 };
    let shadow =
        Shadow { offset: [0, 6], blur: 24, spread: 0, color: Color32::from_black_alpha(alpha) };
    (visuals.window_shadow, visuals.popup_shadow) = (shadow, shadow);
    visuals.striped = false;
    visuals
}

/// A button in the accent colour, for the main action of a place.
pub fn main_button(ui: &mut Ui, enabled: bool, text: &str) -> egui::Response {
    let palette = palette(ui);
    ui.scope(|ui| {
        let widgets = &mut ui.visuals_mut().widgets;
        for (state, fill) in [
            (&mut widgets.inactive, palette.accent),
            (&mut widgets.hovered, palette.accent_strong),
            (&mut widgets.active, palette.accent_strong),
        ] {
            (state.weak_bg_fill, state.bg_fill) = (fill, fill);
            state.fg_stroke.color = palette.on_accent;
        }
        ui.add_enabled(enabled, egui::Button::new(text))
    })
    .inner
}

/// A button without a background, for side actions.
pub fn quiet_button(ui: &mut Ui, text: &str) -> egui::Response {
    let palette = palette(ui);
    ui.scope(|ui| {
        ui.visuals_mut().widgets.inactive.weak_bg_fill = Color32::TRANSPARENT;
        ui.visuals_mut().widgets.inactive.fg_stroke.color = palette.faint;
        ui.visuals_mut().widgets.hovered.weak_bg_fill = palette.sunken;
        ui.button(text)
    })
    .inner
}

/// Gives a part of the window that shows no label its name for screen readers.
pub fn name(response: &egui::Response, kind: egui::Role, name: &str) {
    response.widget_info(|| egui::WidgetInfo::labeled(kind, true, name));
}

/// Draws contents on a card.
pub fn card<R>(ui: &mut Ui, contents: impl FnOnce(&mut Ui) -> R) -> R {
    let palette = palette(ui);
    egui::Frame::new()
        .fill(palette.raised)
        .stroke(Stroke::new(1.0, palette.line))
        .corner_radius(14)
        .inner_margin(egui::Margin::symmetric(16, 12))
        .show(ui, |ui| {
            ui.set_min_width(ui.available_width());
            contents(ui)
        })
        .inner
}

/// Draws a heading with an explanation below it.
pub fn title(ui: &mut Ui, heading: &str, text: &str) {
    ui.add_space(4.0);
    ui.heading(heading);
    if !text.is_empty() {
        ui.weak(text);
    }
    ui.add_space(6.0);
}
