//! Decodes `headers`: an object of strings, within its limits.

use super::{Member, Reader};
use crate::wire::error::{LimitExceeded, Problem, shown};
use crate::wire::headers::{Headers, PROTO};
use crate::wire::json::{Ambiguity, Stop};
use crate::wire::limits::Limits;

impl Reader<'_> {
    pub(super) fn headers(&mut self) -> Result<(), Stop> {
        if self.scanner.peek() != b'{' {
            self.scanner.value()?;
            self.flaws.add(Member::Headers.name(), Problem::Expected("an object of strings"));
            return Ok(());
        }
        let (mut entries, mut count, mut size) = (Vec::new(), 0, 0);
        let disordered = self.object(|reader, name| {
            let from = reader.scanner.at();
            let value = reader.string()?;
            count += 1;
            if name == PROTO {
                let problem = Problem::Ambiguous { why: Ambiguity::ProtoHeader, at: from };
                reader.flaws.add(format!("headers.{PROTO}"), problem);
            }
            match value {
                Some(value) => {
                    size += name.len() + value.len();
                    if count <= reader.limits.max_headers {
                        entries.push((reader.share(name), reader.share(value)));
                    }
                }
                None => {
                    let path = format!("headers.{}", shown(&name));
                    reader.flaws.add(path, Problem::Expected("a string"));
                }
            }
            Ok(())
        })?;
        let Limits { max_headers, max_header_bytes, .. } = *self.limits;
        if count > max_headers {
            let excess = LimitExceeded::Headers { count, limit: max_headers };
            self.flaws.add(Member::Headers.name(), Problem::TooLarge(excess));
        }
        if size > max_header_bytes {
            let excess = LimitExceeded::HeaderBytes { size, limit: max_header_bytes };
            self.flaws.add(Member::Headers.name(), Problem::TooLarge(excess));
        }
        self.draft.headers = Headers::from_wire(entries, disordered);
        Ok(())
    }
}
