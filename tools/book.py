# SPDX-License-Identifier: Apache-2.0
"""A hook of mkdocs (mkdocs.yml): a site has the pages of docs/, and no other file of the tree. So a
link that leads out of docs/ stays as its text alone."""
import os
import re

LINK = re.compile(r"\[([^]]*)\]\(([^)#:]+)(#[^)]*)?\)")


def on_page_markdown(markdown, page, config, files):
    folder = os.path.dirname(page.file.src_path)

    def kept(m):
        at = os.path.normpath(os.path.join(folder, m[2]))
        return m[0] if files.get_file_from_path(at) else m[1]
    return LINK.sub(kept, markdown)
