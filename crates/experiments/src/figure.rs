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
    /// Name of the abscissa, with its unit.
    pub x: &'static str,
    /// Name of the ordinate, with its unit.
    pub y: &'static str,
    /// Upper end of the picture; `None` for the highest value.
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

impl Panel {
    /// A row for each x: every curve's y there, and which of them is within 2 % of the lowest. The
    /// first row is the heads.
    pub fn rows(&self) -> Vec<Vec<String>> {
        let labels = self.curves.iter().map(|curve| curve.label.clone());
        let head = [self.x.to_owned()].into_iter().chain(labels).chain(["lowest".to_owned()]);
        let mut at: Vec<f64> = self
            .curves
            .iter()
            .flat_map(|curve| curve.obtained.iter().map(|point| point.0))
            .collect();
        at.sort_by(f64::total_cmp);
        at.dedup();
        [head.collect()].into_iter().chain(at.into_iter().map(|x| self.row(x))).collect()
    }

    fn row(&self, x: f64) -> Vec<String> {
        let found = |curve: &Curve| curve.obtained.iter().find(|point| point.0 == x).map(|it| it.1);
        let ys: Vec<Option<f64>> = self.curves.iter().map(found).collect();
        let lowest = ys.iter().flatten().copied().fold(f64::INFINITY, f64::min);
        let near =
            self.curves.iter().zip(&ys).filter(|(_, y)| y.is_some_and(|y| y <= 1.02 * lowest));
        let names: Vec<&str> = near.map(|(curve, _)| curve.label.as_str()).collect();
        let cells = ys.iter().map(|y| y.map_or_else(|| "-".to_owned(), |y| format!("{y:.1}")));
        [format!("{x}")].into_iter().chain(cells).chain([names.join(", ")]).collect()
    }
}

fn quoted(cell: &str) -> String {
    if cell.contains(',') { format!("\"{cell}\"") } else { cell.to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_says_whose_curve_is_the_lowest() {
        let curve = |label: &str, obtained: &[(f64, f64)]| Curve {
            label: label.to_owned(),
            obtained: obtained.to_vec(),
            expected: Vec::new(),
        };
        let curves = vec![
            curve("one", &[(0.1, 100.0), (0.9, 300.0)]),
            curve("two", &[(0.1, 101.9), (0.9, 200.0)]),
            curve("three", &[(0.1, 102.1)]),
        ];
        let panel = Panel { title: String::new(), x: "load", y: "us", y_max: None, curves };
        let rows: Vec<String> = panel.rows().iter().map(|row| row.join(" ")).collect();
        let expected = [
            "load one two three lowest",
            "0.1 100.0 101.9 102.1 one, two",
            "0.9 300.0 200.0 - two",
        ];
        assert_eq!(rows, expected);
    }

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
