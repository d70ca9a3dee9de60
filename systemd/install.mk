# `make install-systemd`. With DESTDIR=… it stages the files for a package and runs nothing; a
# package also sets UNITDIR=/usr/lib/systemd/system, SYSUSERSDIR=/usr/lib/sysusers.d, MANDIR=/usr/share/man,
# and COMMAND.
DESTDIR     ?=
UNITDIR     ?= /etc/systemd/system
SYSUSERSDIR ?= /etc/sysusers.d
MANDIR      ?= /usr/local/share/man
COMMAND     ?= /opt/ccm-supervisor/bin/ccm-supervisor
SYSTEMD     := $(dir $(lastword $(MAKEFILE_LIST)))

##@ Install
.PHONY: install-systemd uninstall-systemd
install-systemd: ## Install the systemd unit, its user, its flags file and the manual page
	install -d -m 0755 $(DESTDIR)$(UNITDIR) $(DESTDIR)$(SYSUSERSDIR)
	install -d -m 0700 $(DESTDIR)/etc/ccm-supervisor
	install -m 0644 $(SYSTEMD)ccm-supervisor.service $(DESTDIR)$(UNITDIR)
	sed -i 's|^ExecStart=[^ ]*|ExecStart=$(COMMAND)|' $(DESTDIR)$(UNITDIR)/ccm-supervisor.service
	install -m 0644 $(SYSTEMD)ccm-supervisor.sysusers $(DESTDIR)$(SYSUSERSDIR)/ccm-supervisor.conf
	install -D -m 0644 $(SYSTEMD)ccm-supervisor.1 $(DESTDIR)$(MANDIR)/man1/ccm-supervisor.1 || \
	  echo "The manual page is left out: $(MANDIR) cannot be written" >&2
	test -e $(DESTDIR)/etc/ccm-supervisor/ccm-supervisor.env || \
	  install -m 0600 $(SYSTEMD)ccm-supervisor.env $(DESTDIR)/etc/ccm-supervisor
ifeq ($(DESTDIR),)
	systemd-sysusers $(SYSUSERSDIR)/ccm-supervisor.conf
	systemctl daemon-reload
endif

uninstall-systemd: ## Remove all of it but flags and credentials
	rm -f $(DESTDIR)$(UNITDIR)/ccm-supervisor.service $(DESTDIR)$(SYSUSERSDIR)/ccm-supervisor.conf
	rm -f $(DESTDIR)$(MANDIR)/man1/ccm-supervisor.1
ifeq ($(DESTDIR),)
	systemctl daemon-reload
endif
