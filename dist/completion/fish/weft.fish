# SPDX-License-Identifier: Apache-2.0
# Completion of weft(1) for fish. The program itself knows what may follow.
function __weft_complete
	set -l words (commandline -opc)
	set -l typed (commandline -ct)
	set -l lines ($words[1] complete -- $words[2..] "$typed" 2>/dev/null)
	if test "$lines[1]" = :files
		__fish_complete_path "$typed"
	else if test (count $lines) -gt 0
		printf '%s\n' $lines
	end
end
complete -c weft -f -a '(__weft_complete)'
