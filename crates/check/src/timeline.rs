//! A page that shows why a history violates its models: each minimal set of operations that have no order, the cycle
//! of reasons between them in words, and both drawn on a timeline.
//!
//! The page needs nothing but itself: no network, no script, and its own security policy forbids both. All that comes
//! from the history is escaped. Reasons differ by dashes and numbers, not by colour alone, and all that the drawing says
//! stands in tables too.

mod drawing;
mod layout;
mod words;

use crate::Explanation;
use drawing::{Drawing, pairs};
use layout::Layout;
use meridian_protocol::history::Event;
use std::collections::{BTreeSet, HashMap};
use std::fmt::{self, Display, Formatter};
use words::Text;

const STYLE: &str = include_str!("timeline/style.css");

/// The page that shows `explanations`, which are about `events`, as HTML.
pub fn page(events: &[Event], explanations: &[Explanation]) -> String {
    Page { events, explanations }.to_string()
}

struct Page<'a> {
    events: &'a [Event],
    explanations: &'a [Explanation],
}

impl Display for Page<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let models: Vec<String> = self.explanations.iter().map(|e| e.model.to_string()).collect();
        let title = match models.len() {
            0 => "nothing is violated".to_string(),
            _ => format!("{} violated", models.join(", ")),
        };
        write!(
            f,
            "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
             <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
             <meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'; img-src data:\">\n\
             <link rel=\"icon\" href=\"data:,\">\n<title>{title} · meridian check</title>\n<style>\n{STYLE}</style>\n</head>\n<body>\n{}",
            drawing::DEFINITIONS
        )?;
        let count = |names: BTreeSet<&String>| names.len();
        writeln!(
            f,
            "<main>\n<h1>meridian check: {title}</h1>\n<p class=\"dim\">A history of {}, {}, {}.</p>",
            counted(self.events.len(), "operation"),
            counted(count(self.events.iter().map(|event| &event.session).collect()), "session"),
            counted(count(self.events.iter().map(|event| &event.service).collect()), "service"),
        )?;
        if models.len() > 1 {
            let links: Vec<String> = models
                .iter()
                .enumerate()
                .map(|(n, model)| format!("<a href=\"#e{n}\">{model}</a>"))
                .collect();
            writeln!(f, "<nav aria-label=\"Models\"><p>{}</p></nav>", links.join(" · "))?;
        }
        let by_id = self.events.iter().map(|event| (event.id, event)).collect();
        for (number, explanation) in self.explanations.iter().enumerate() {
            write!(f, "{}", Section { number, explanation, events: self.events, by_id: &by_id })?;
        }
        f.write_str("</main>\n</body>\n</html>\n")
    }
}

fn counted(count: usize, what: &str) -> String {
    format!("{count} {what}{}", if count == 1 { "" } else { "s" })
}

/// One explanation.
struct Section<'a> {
    number: usize,
    explanation: &'a Explanation,
    events: &'a [Event],
    by_id: &'a HashMap<u64, &'a Event>,
}

impl Display for Section<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let n = self.number;
        let Explanation { model, words, .. } = self.explanation;
        writeln!(
            f,
            "<section id=\"e{n}\" aria-labelledby=\"h{n}\">\n<h2 id=\"h{n}\">{model} is violated</h2>\n\
             <p class=\"words\" id=\"words{n}\">{}</p>",
            Text(words)
        )?;
        self.figure(f)?;
        self.steps(f)?;
        self.operations(f)?;
        self.models(f)?;
        f.write_str("</section>\n")
    }
}

impl Section<'_> {
    fn figure(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let layout = Layout::new(self.events, self.explanation);
        write!(
            f,
            "<figure>\n<div class=\"scroll\" tabindex=\"0\" role=\"region\" aria-label=\"Timeline, scrolls sideways\">\n{}</div>\n",
            Drawing { layout: &layout, explanation: self.explanation, number: self.number }
        )?;
        self.legend(f, &layout)?;
        f.write_str("<figcaption>Times stand in their true order, at distances that fit; shaded: long gaps, squeezed.")?;
        if let Some(origin) = drawing::origin(&layout) {
            write!(f, " Times count from {origin}.")?;
        }
        match layout.hidden {
            0 => {}
            1 => f.write_str(" 1 other operation is not shown.")?,
            hidden => write!(f, " {hidden} other operations are not shown.")?,
        }
        f.write_str("</figcaption>\n</figure>\n")
    }

    fn legend(&self, f: &mut Formatter<'_>, layout: &Layout<'_>) -> fmt::Result {
        f.write_str("<ul class=\"legend\" aria-label=\"Legend\">\n")?;
        let sign = |class: &str| {
            format!(
                "<svg width=\"30\" height=\"16\" aria-hidden=\"true\"><g class=\"{class}\">\
                 <rect class=\"bar\" x=\"2\" y=\"2\" width=\"26\" height=\"12\" rx=\"3\"/></g></svg>"
            )
        };
        writeln!(f, "<li>{}cannot be ordered</li>", sign("core"))?;
        if layout.bars.iter().any(|bar| !bar.core) {
            writeln!(f, "<li>{}others</li>", sign(""))?;
        }
        if layout.bars.iter().any(|bar| bar.open) {
            let fading = "<svg width=\"30\" height=\"16\" aria-hidden=\"true\">\
                          <rect fill=\"url(#fade)\" x=\"2\" y=\"2\" width=\"26\" height=\"12\" rx=\"3\"/>\
                          <path class=\"edge\" d=\"M9,2h-4q-3,0 -3,3v6q0,3 3,3h4\"/></svg>";
            writeln!(f, "<li>{fading}end not known: it may take effect later</li>")?;
        }
        let mut styles: Vec<_> = self.explanation.cycle.iter().map(|step| words::style(step.why)).collect();
        styles.sort_unstable();
        styles.dedup();
        for (class, dashes, words) in styles {
            writeln!(
                f,
                "<li><svg width=\"44\" height=\"12\" aria-hidden=\"true\"><g class=\"{class}\">\
                 <path class=\"line\" stroke-dasharray=\"{dashes}\" d=\"M0,6H36\"/><path class=\"head\" d=\"M44,6l-9,-5v10z\"/>\
                 </g></svg>{words}</li>"
            )?;
        }
        if layout.bars.iter().any(|bar| bar.event.ops.iter().any(|access| access.value.is_none())) {
            writeln!(f, "<li>{}: the key is absent</li>", words::ABSENT)?;
        }
        f.write_str("</ul>\n")
    }

    fn steps(&self, f: &mut Formatter<'_>) -> fmt::Result {
        if self.explanation.cycle.is_empty() {
            return Ok(());
        }
        f.write_str(
            "<table class=\"stack\">\n<caption>The cycle: each must come before the next, the last before the first</caption>\n\
             <thead><tr><th scope=\"col\">step</th><th scope=\"col\">operation</th><th scope=\"col\">why it comes before</th>\
             <th scope=\"col\">operation</th></tr></thead>\n<tbody>\n",
        )?;
        for (index, (from, to)) in pairs(&self.explanation.cycle).enumerate() {
            writeln!(
                f,
                "<tr><td class=\"count\">{}</td><td>{}</td><td class=\"why\">{}</td><td>{}</td></tr>",
                index + 1,
                Text(&self.sentence(from.id)),
                from.why.words(),
                Text(&self.sentence(to.id)),
            )?;
        }
        f.write_str("</tbody>\n</table>\n")
    }

    fn sentence(&self, id: u64) -> String {
        self.by_id.get(&id).map_or_else(|| format!("op {id}"), |event| words::sentence(event))
    }

    fn operations(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str(
            "<table class=\"stack\">\n<caption>The operations: together they have no order; without any one of them the rest has</caption>\n\
             <thead><tr><th scope=\"col\">id</th><th scope=\"col\">session</th><th scope=\"col\">what it did</th>\
             <th scope=\"col\">from invocation to return</th></tr></thead>\n<tbody>\n",
        )?;
        for event in self.explanation.operations.iter().filter_map(|id| self.by_id.get(id)) {
            writeln!(
                f,
                "<tr><td class=\"count\">{}</td><td>{}</td><td>{}</td><td class=\"why\">{}</td></tr>",
                event.id,
                Text(&words::place(event)),
                Text(&words::deeds(event)),
                words::duration(event),
            )?;
        }
        f.write_str("</tbody>\n</table>\n")
    }

    fn models(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let list = |models: &[crate::Model]| match models {
            [] => "none that was tried".to_string(),
            _ => models.iter().map(ToString::to_string).collect::<Vec<_>>().join(", "),
        };
        writeln!(
            f,
            "<h3>Which models allow these operations, by their values alone</h3>\n<p>The strongest that allow them: {}.<br>The weakest that \
             allow them: {}.<br>The weakest that forbid them: {}.</p>",
            list(&self.explanation.allowed_by),
            list(&self.explanation.weakest_allowing),
            list(&self.explanation.forbidden_by)
        )
    }
}
