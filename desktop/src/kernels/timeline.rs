//! The kernels of a run over time.

use eframe::egui::{self, Align2, FontId, Pos2, Rect, Sense, Stroke, Ui, Vec2};

use super::color;
use crate::engine::Kernels;
use crate::format;
use crate::look;

/// Height of a row, in points.
const ROW: f32 = 19.0;
/// Rows; later engines share the last one.
const ROWS: usize = 8;

/// Draws the steps over time, a row for each engine. Returns the step that was clicked.
pub(super) fn ui(ui: &mut Ui, kernels: &Kernels, shown: Option<usize>) -> Option<usize> {
    let Some(analysis) = &kernels.report.analysis else { return None };
    let steps = &kernels.report.steps;
    let begin = analysis.spans.iter().map(|span| span.0).fold(f64::INFINITY, f64::min);
    let end = analysis.spans.iter().map(|span| span.1).fold(0.0, f64::max);
    if end <= begin || analysis.spans.len() != steps.len() {
        return None;
    }
    let rows = kernels.report.engines.len().clamp(1, ROWS);
    let size = Vec2::new(ui.available_width(), ROW * rows as f32 + 18.0);
    let (response, painter) = ui.allocate_painter(size, Sense::click());
    let palette = look::palette(ui);
    let area = response.rect;
    painter.rect_filled(area, 8.0, palette.sunken);
    let x = |at: f64| area.left() + ((at - begin) / (end - begin)) as f32 * area.width();
    let (pointer, mut hit) = (response.hover_pos(), None);
    for (i, (span, step)) in analysis.spans.iter().zip(steps).enumerate() {
        let (row, color) = color(kernels, &step.engine);
        let top = area.top() + ROW * row.min(rows - 1) as f32 + 2.0;
        let right = x(span.1).max(x(span.0) + 1.0);
        let rect = Rect::from_min_max(Pos2::new(x(span.0), top), Pos2::new(right, top + ROW - 4.0));
        painter.rect_filled(rect, 2.0, color);
        if shown == Some(i) {
            painter.rect_stroke(
                rect,
                2.0,
                Stroke::new(2.0, palette.text),
                egui::StrokeKind::Outside,
            );
        }
        if pointer.is_some_and(|pointer| rect.expand2(Vec2::new(1.0, 2.0)).contains(pointer)) {
            hit = Some(i);
        }
    }
    let font = FontId::proportional(11.0);
    let corner = [
        (area.left_bottom() + Vec2::new(6.0, -2.0), Align2::LEFT_BOTTOM, "0".to_owned()),
        (
            area.right_bottom() + Vec2::new(-6.0, -2.0),
            Align2::RIGHT_BOTTOM,
            format::seconds(end - begin),
        ),
    ];
    for (at, align, text) in corner {
        painter.text(at, align, text, font.clone(), palette.faint);
    }
    if let Some(i) = hit {
        let time = steps[i].measured.as_ref().map_or(0.0, |measured| measured.median);
        let text = format!("{} · {} · {}", steps[i].engine, steps[i].label, format::seconds(time));
        response.clone().on_hover_text_at_pointer(text);
    }
    hit.filter(|_| response.clicked())
}
