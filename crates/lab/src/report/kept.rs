//! The report as files to be kept beside a project's documentation: Markdown, the page, and each picture with its legend.

use super::{Page, Picture, Reported};
use askama::Template;
use std::error::Error;
use std::fmt::Write as _;

/// The same as [`Page`], in Markdown.
#[derive(Template)]
#[template(path = "report.md")]
struct Markdown<'p> {
    title: &'p str,
    introduction: &'p str,
    headlines: &'p [super::Row],
    tally: &'p [(String, usize)],
    sections: &'p [super::Section],
}

/// The files, by their paths.
///
/// # Errors
/// What the libraries that draw and write say.
pub fn files(reported: &[Reported]) -> Result<Vec<(String, String)>, Box<dyn Error>> {
    let page = super::whole(reported)?;
    let Page { title, introduction, headlines, tally, sections } = &page;
    let markdown = Markdown { title, introduction, headlines, tally, sections };
    let mut files = vec![("README.md".to_owned(), markdown.render()? + "\n")];
    for section in sections {
        let drawn = section.pictures.iter().zip(1..).filter(|(picture, _)| !picture.svg.is_empty());
        files.extend(
            drawn.map(|(picture, number)| (format!("figures/{}-{number}.svg", section.name), alone(picture))),
        );
    }
    files.push(("report.html".to_owned(), page.render()?));
    Ok(files)
}

/// A picture with its title and its legend, as a file of its own.
fn alone(picture: &Picture) -> String {
    const LINE: usize = 24;
    let (width, height) = super::chart::SIZE;
    let above = LINE * (picture.legend.len() + 1) + 8;
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {}\" font-family=\"sans-serif\" font-size=\"18\">\n\
         <rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n<text x=\"12\" y=\"22\" font-weight=\"bold\">{}</text>\n",
        above + height as usize,
        escaped(&picture.title)
    );
    for (key, line) in picture.legend.iter().zip(1..) {
        let y = LINE * line + 16;
        // Writing to a string has no error.
        let _ = writeln!(
            svg,
            "<line x1=\"14\" y1=\"{y}\" x2=\"64\" y2=\"{y}\" stroke=\"{}\" stroke-width=\"4\" stroke-dasharray=\"{}\"/>\
             <text x=\"74\" y=\"{}\">{}</text>",
            key.colour,
            key.dashes,
            y + 6,
            escaped(&key.name)
        );
    }
    let _ = writeln!(svg, "<g transform=\"translate(0,{above})\">{}</g>\n</svg>", picture.svg);
    svg
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}
