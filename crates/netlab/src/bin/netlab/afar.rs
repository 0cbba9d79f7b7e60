//! `netlab afar`: a server far away, until killed or until standard input ends.

use std::io::{self, Read, Write};

use swath_netlab::afar::Afar;

use crate::options;

pub fn run(options: &options::Afar) -> io::Result<()> {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    runtime.block_on(async {
        let afar = Afar::listen(options.server, options.link).await?;
        let mut out = io::stdout();
        writeln!(out, "{}", afar.address())?;
        out.flush()?;
        if !options.until_eof {
            return afar.carry().await;
        }
        let (end, ended) = tokio::sync::oneshot::channel();
        // A thread of its own: reading standard input cannot be given up.
        std::thread::spawn(move || {
            let _ = io::stdin().read_to_end(&mut Vec::new());
            let _ = end.send(());
        });
        tokio::select! {
            carried = afar.carry() => carried,
            _ = ended => Ok(()),
        }
    })
}
