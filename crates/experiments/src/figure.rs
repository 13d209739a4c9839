//! A reproduced figure: its curves, which may be written as CSV, and the verdicts on it.

use super::verdict::Verdict;

/// A reproduction's result: curves and verdicts.
#[derive(Clone, Debug)]
pub struct Figure {
    /// In the order in which they are drawn.
    pub panels: Vec<Panel>,
    /// One for each value that is compared.
    pub verdicts: Vec<Verdict>,
}

/// Curves over one pair of axes.
#[derive(Clone, Debug)]
pub struct Panel {
    /// Its heading.
    pub title: String,
    /// Of the abscissa, with its unit.
    pub x: &'static str,
    /// Of the ordinate, with its unit.
    pub y: &'static str,
    /// Where the picture ends; `None` for the highest value.
    pub y_max: Option<f64>,
    /// In the order of their looks.
    pub curves: Vec<Curve>,
}

/// One curve: what was obtained is a line, what was published or is exact are marks.
#[derive(Clone, Debug, Default)]
pub struct Curve {
    /// Its name.
    pub label: String,
    /// Simulated points, by ascending x.
    pub obtained: Vec<(f64, f64)>,
    /// Published or exact points, by ascending x.
    pub expected: Vec<(f64, f64)>,
}

impl Figure {
    /// A line for each point: panel, curve, whether it was obtained or is expected, x and y.
    pub fn csv(&self) -> String {
        let mut text = "panel,curve,kind,x,y\n".to_owned();
        for panel in &self.panels {
            for curve in &panel.curves {
                let obtained = curve.obtained.iter().map(|point| ("obtained", point));
                let expected = curve.expected.iter().map(|point| ("expected", point));
                for (kind, (x, y)) in obtained.chain(expected) {
                    text += &format!(
                        "{},{},{kind},{x},{y}\n",
                        quoted(&panel.title),
                        quoted(&curve.label)
                    );
                }
            }
        }
        text
    }
}

fn quoted(cell: &str) -> String {
    if cell.contains(',') { format!("\"{cell}\"") } else { cell.to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_point_has_a_line() {
        let curve = |label: &str| Curve {
            label: label.to_owned(),
            obtained: vec![(0.5, 1.0), (0.9, 3.0)],
            expected: vec![(0.9, 3.1)],
        };
        let panel = |title: &str| Panel {
            title: title.to_owned(),
            x: "load",
            y: "p99 (mean service times)",
            y_max: None,
            curves: vec![curve("1x16"), curve("a, b")],
        };
        let figure = Figure { panels: vec![panel("fixed"), panel("exp")], verdicts: vec![] };
        let csv = figure.csv();
        assert_eq!(csv.lines().count(), 13);
        assert!(csv.contains("\nexp,\"a, b\",expected,0.9,3.1\n"), "{csv}");
    }
}
