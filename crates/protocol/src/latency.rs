//! How far regions lie from each other: round-trip times, published ones and a reader of files. The embedded
//! cluster delays its links by them, the simulator its messages.

use crate::clock::Micros;
use crate::topology::Region;

/// Regions by name and the round-trip time between each two.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RttMatrix {
    names: Vec<String>,
    /// Row by row; symmetric, the diagonal is the time between two nodes of one region.
    micros: Vec<Micros>,
}

impl RttMatrix {
    /// The regions that `--regions` names, as far apart as `--rtt` says.
    ///
    /// `regions` is a list of names or a number of them. `rtt` is `paper`, `paper-spanner`, `none` or a file,
    /// whose text `read` fetches.
    ///
    /// # Errors
    /// What is wrong with either, for a person to read.
    pub fn of_flags(
        regions: &str,
        rtt: &str,
        read: impl FnOnce(&str) -> Result<String, String>,
    ) -> Result<Self, String> {
        let known = match rtt {
            "paper" => Self::paper(),
            "paper-spanner" => Self::paper_spanner(),
            "none" => return Self::none(regions),
            file => Self::from_csv(&read(file)?).map_err(|faults| format!("{file}: {faults}"))?,
        };
        known.choose(regions)
    }

    /// Gryff, figure 5 (the RSS paper's table 2): California, Virginia, Ireland, Oregon, Japan; 0.2 ms inside
    /// a region. Frankfurt and Singapore are *not* from the papers: typical public figures, so that seven
    /// regions can be had.
    pub fn paper() -> Self {
        Self::of_tenths(
            &["ca", "va", "ir", "or", "jp", "fr", "sg"],
            &[
                &[720, 1510, 590, 1130, 1480, 1700],
                &[880, 930, 1620, 900, 2150],
                &[1450, 2200, 250, 1750],
                &[1210, 1400, 1620],
                &[2250, 680],
                &[1580],
            ],
        )
    }

    /// RSS/RSC, section 6: California, Virginia, Ireland, as its Spanner experiments emulate them.
    pub fn paper_spanner() -> Self {
        Self::of_tenths(&["ca", "va", "ir"], &[&[620, 1360], &[680]])
    }

    /// Regions at no distance from each other.
    ///
    /// # Errors
    /// What is wrong with `regions`.
    pub fn none(regions: &str) -> Result<Self, String> {
        let names: Vec<String> = match regions.trim().parse::<usize>() {
            Ok(count) => {
                let all = Self::paper().names;
                let named = all.get(..count).ok_or_else(|| too_many(count, &all))?;
                named.to_vec()
            }
            Err(_) => regions.split(',').map(|name| name.trim().to_owned()).collect(),
        };
        let faults = faults_of_names(&names);
        if !faults.is_empty() {
            return Err(faults.join("; "));
        }
        Ok(Self { micros: vec![0; names.len() * names.len()], names })
    }

    /// Reads a CSV: a header of region names, then a row of milliseconds for each of them in the same order.
    ///
    /// # Errors
    /// All faults, each with its line.
    pub fn from_csv(text: &str) -> Result<Self, String> {
        let mut lines =
            text.lines().enumerate().map(|(i, line)| (i + 1, line)).filter(|(_, l)| !l.trim().is_empty());
        let Some((_, header)) = lines.next() else {
            return Err("no header: the first line names the regions, separated by commas".to_owned());
        };
        let names: Vec<String> = header.split(',').map(|name| name.trim().to_owned()).collect();
        let mut faults = faults_of_names(&names);
        let mut micros: Vec<Micros> = Vec::new();
        let mut rows = 0;
        for (number, line) in lines {
            rows += 1;
            let cells: Vec<&str> = line.split(',').map(str::trim).collect();
            if cells.len() != names.len() {
                faults.push(format!("line {number}: {} numbers for {} regions", cells.len(), names.len()));
            }
            for cell in cells {
                match cell.parse::<f64>() {
                    Ok(ms) if (0.0..=60_000.0).contains(&ms) => micros.push((ms * 1_000.0).round() as Micros),
                    _ => faults.push(format!("line {number}: '{cell}' is no time from 0 to 60000 ms")),
                }
            }
        }
        if rows != names.len() {
            faults.push(format!("{rows} rows for {} regions: there must be one row a region", names.len()));
        }
        if !faults.is_empty() {
            return Err(faults.join("; "));
        }
        let matrix = Self { names, micros };
        for (a, b) in matrix.pairs() {
            if matrix.rtt(a, b) != matrix.rtt(b, a) {
                let (a, b) = (&matrix.names[a.index()], &matrix.names[b.index()]);
                faults
                    .push(format!("{a} to {b} and back differ: a round trip takes the same from both ends"));
            }
        }
        if faults.is_empty() { Ok(matrix) } else { Err(faults.join("; ")) }
    }

    /// The regions' names, in order.
    pub fn names(&self) -> &[String] {
        &self.names
    }

    /// How many regions there are.
    pub fn regions(&self) -> u8 {
        self.names.len() as u8
    }

    /// The round-trip time between two regions, or between two nodes of one.
    ///
    /// # Panics
    /// If a region is not in the matrix.
    pub fn rtt(&self, a: Region, b: Region) -> Micros {
        self.micros[a.index() * self.names.len() + b.index()]
    }

    /// All regions as seen from one: itself first, the nearest next; of equally near ones the next in a ring.
    pub fn nearest_first(&self, from: Region) -> Vec<Region> {
        let count = self.regions();
        let mut order: Vec<Region> = (0..count).map(|step| Region((from.0 + step) % count)).collect();
        order[1..].sort_by_key(|region| self.rtt(from, *region));
        order
    }

    /// The part of the matrix that `regions` asks for: names, or the first so many.
    fn choose(&self, regions: &str) -> Result<Self, String> {
        let chosen: Vec<usize> = if let Ok(count) = regions.trim().parse::<usize>() {
            if count > self.names.len() {
                return Err(too_many(count, &self.names));
            }
            (0..count).collect()
        } else {
            let mut chosen = Vec::new();
            for name in regions.split(',').map(str::trim) {
                let Some(index) = self.names.iter().position(|known| known == name) else {
                    let known = self.names.join(", ");
                    return Err(format!(
                        "no round-trip times are known for region '{name}': choose from {known}"
                    ));
                };
                chosen.push(index);
            }
            chosen
        };
        let names: Vec<String> = chosen.iter().map(|index| self.names[*index].clone()).collect();
        let faults = faults_of_names(&names);
        if !faults.is_empty() {
            return Err(faults.join("; "));
        }
        let rtt = |a: usize, b: usize| self.micros[a * self.names.len() + b];
        let micros = chosen.iter().flat_map(|a| chosen.iter().map(move |b| rtt(*a, *b))).collect();
        Ok(Self { names, micros })
    }

    fn pairs(&self) -> impl Iterator<Item = (Region, Region)> + use<> {
        let count = self.regions();
        (0..count).flat_map(move |a| (a + 1..count).map(move |b| (Region(a), Region(b))))
    }

    /// From the upper triangle in tenths of a millisecond; a region is 0.2 ms wide.
    fn of_tenths(names: &[&str], rows: &[&[Micros]]) -> Self {
        let cell = |a: usize, b: usize| if a == b { 200 } else { rows[a.min(b)][a.abs_diff(b) - 1] * 100 };
        let count = names.len();
        let micros = (0..count).flat_map(|a| (0..count).map(move |b| cell(a, b))).collect();
        Self { names: names.iter().map(|name| (*name).to_owned()).collect(), micros }
    }
}

/// Rules for a list of region names.
fn faults_of_names(names: &[String]) -> Vec<String> {
    let mut faults = Vec::new();
    if names.len() > 63 || names.len().is_multiple_of(2) {
        faults.push(format!("{} regions: their number must be odd and below 64", names.len()));
    }
    for (i, name) in names.iter().enumerate() {
        if name.is_empty() || !name.chars().all(|c| c.is_ascii_alphanumeric() || "-_".contains(c)) {
            faults.push(format!("'{name}' is no name of a region: use letters, digits, - and _"));
        }
        if names[..i].contains(name) {
            faults.push(format!("region '{name}' is named twice"));
        }
    }
    faults
}

fn too_many(count: usize, known: &[String]) -> String {
    format!(
        "{count} regions: only {} are known ({}); name them, or give a file",
        known.len(),
        known.join(", ")
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(regions: &str, rtt: &str) -> Result<RttMatrix, String> {
        RttMatrix::of_flags(regions, rtt, |_| Ok("a,b,c\n0.5,10,20\n10,0.5,7.5\n20,7.5,0.5\n".to_owned()))
    }

    #[test]
    fn the_papers_figures() {
        let paper = of("5", "paper").unwrap();
        assert_eq!(paper.names(), ["ca", "va", "ir", "or", "jp"]);
        let ms = |a: u8, b: u8| paper.rtt(Region(a), Region(b)) / 1_000;
        assert_eq!([ms(0, 1), ms(0, 2), ms(0, 3), ms(0, 4)], [72, 151, 59, 113]);
        assert_eq!([ms(1, 2), ms(1, 3), ms(1, 4)], [88, 93, 162]);
        assert_eq!([ms(2, 3), ms(2, 4), ms(3, 4)], [145, 220, 121]);
        assert_eq!(paper.rtt(Region(3), Region(3)), 200);
        assert_eq!(paper.nearest_first(Region(0)).iter().map(|r| r.0).collect::<Vec<_>>(), [0, 3, 1, 4, 2]);
        let spanner = of("ca,va,ir", "paper-spanner").unwrap();
        assert_eq!(spanner.rtt(Region(2), Region(0)), 136_000);
        assert_eq!(spanner.rtt(Region(1), Region(2)), 68_000);
    }

    #[test]
    fn regions_are_chosen_by_name_in_the_order_given() {
        let chosen = of("ir,ca,jp", "paper").unwrap();
        assert_eq!(chosen.names(), ["ir", "ca", "jp"]);
        assert_eq!(chosen.rtt(Region(0), Region(2)), 220_000);
        assert_eq!(of("7", "paper").unwrap().names().len(), 7);
        assert!(of("9", "paper").unwrap_err().contains("only 7 are known"));
        assert!(of("ca,mars,ir", "paper").unwrap_err().contains("'mars'"));
        assert!(of("4", "paper").unwrap_err().contains("odd"));
        assert!(of("ca,ca,ir", "none").unwrap_err().contains("twice"));
        let none = of("x,y,z", "none").unwrap();
        assert_eq!(none.rtt(Region(0), Region(1)), 0);
        assert_eq!(none.nearest_first(Region(1)), [Region(1), Region(2), Region(0)]);
    }

    #[test]
    fn files_are_read_and_all_their_faults_told() {
        let file = of("3", "any.csv").unwrap();
        assert_eq!(file.rtt(Region(1), Region(2)), 7_500);
        let faults = RttMatrix::from_csv("a,b,c\n0,1\n1,x,1\n").unwrap_err();
        for part in ["line 2: 2 numbers", "line 3: 'x'", "2 rows for 3"] {
            assert!(faults.contains(part), "{part} in {faults}");
        }
        assert!(RttMatrix::from_csv("a,b,c\n0,1,2\n2,0,3\n2,3,0\n").unwrap_err().contains("differ"));
        assert!(RttMatrix::from_csv("").is_err());
    }
}
